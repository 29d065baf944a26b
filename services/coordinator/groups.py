"""Limits of groups of hosts, and how the shards share them. Pure: times are arguments.

The hosts of a group are in many shards, which report how many pages of it they have. Half of the
limit goes to these evenly, so that none is without, and half by pages. A change of shares costs the
slot that has begun (`shared.pacing.groups`): what can wait is changed seldom.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from operator import attrgetter
from typing import Final

from services.coordinator.allotment import Shard
from shared.contracts.codec import BadMessage
from shared.contracts.fields import MOST_GROUPS
from shared.contracts.messages import Allotment, DemandCurve, GroupLimit, GroupShares
from shared.contracts.reported import GroupPages
from shared.contracts.shares import NamedPages
from shared.pacing.groups import Groups, most_groups, passed

EVENLY: Final = 0.5
"""Part of a limit that does not go by pages."""

MATERIAL_SHARE: Final = 0.1
"""Part of a limit that must move between shards that have some already to be worth a change ..."""

LEAST_SECONDS: Final = 60.0
"""... and so long (wall), or ..."""

LEAST_SLOTS: Final = 20.0
"""... so many slots of the limit after the last one."""

REMEMBERED_SECONDS: Final = 60.0
"""A limit that was taken back is remembered for so long (wall) after the last message that told of
it: another who led may not have heard of it yet."""

_STEPS: Final = 1_000_000
"""Shares are rounded down to such a part: they are said every few seconds."""


class GroupLimits:
    """The limits that operators have set."""

    def __init__(self) -> None:
        self._limits: dict[str, float | None] = {}
        """By group; None: it was taken back."""
        self._changed_at: dict[str, float] = {}
        """When the shares of a group were changed last, wall seconds; or we came to lead."""
        self._untold_since: dict[str, float] = {}
        """Since when no message tells of a limit that was taken back, wall seconds."""
        self.left_out: tuple[str, ...] = ()
        """Groups whose limits do not hold, as the last message had no room for them: shards have
        become more since they were set."""

    def __len__(self) -> int:
        """Groups of which anything is remembered: those that have limits, or had some of late."""
        return len(self._limits)

    def receive(self, message: GroupLimit) -> bool:
        """Take a limit; the last one of a group stands.

        Returns:
            whether it is another than before.

        Raises:
            BadMessage: too many groups have one.
        """
        limit = message.max_crawls_per_second
        before = self._limits.get(message.group)
        standing = sum(known is not None for known in self._limits.values())
        if limit is not None and before is None and standing >= MOST_GROUPS:
            raise BadMessage(
                f"{MOST_GROUPS} groups have limits, and there may be no more: take one back with "
                "`freshet groups unlimit`"
            )
        is_known = message.group in self._limits
        self._limits[message.group] = limit
        return not is_known or limit != before

    def next(
        self,
        before: Groups,
        shards: Mapping[int, Shard],
        live: frozenset[int],
        effective_at: float,
        wall: float,
        speed: float,
    ) -> Groups:
        """The limits and shares that should hold from a time on.

        Args:
            before: those that were said last. One of which no message tells stays as it is: what
                an operator said of it may be unreadable.
            shards: all known ones.
            live: those that are not silent.
            effective_at: clock seconds.
            wall: now.
            speed: clock seconds in one of the wall.
        """
        said = {shares.group: shares for shares in before}
        limits = {shares.group: shares.crawls_per_second for shares in before} | self._limits
        standing = sorted((of, limit) for of, limit in limits.items() if limit is not None)
        self.forget(said.keys(), wall)
        # More could not be sent, and no decision with them.
        most = most_groups(len(shards))
        self.left_out = tuple(name for name, _ in standing[most:])
        reported = GroupReports(shards, live, attrgetter("groups"))
        found: list[GroupShares] = []
        for name, limit in standing[:most]:
            last = said.get(name)
            had = {a.shard: a.share for a in last.allotments} if last is not None else {}
            parts = parts_of(had, reported.pages_of(name))
            if last is None:
                made = GroupShares(name, limit, effective_at, 0.0, _allotments(parts))
            elif limit != last.crawls_per_second or self._is_due(
                last, parts, live, wall, max(LEAST_SECONDS, LEAST_SLOTS / max(limit * speed, 1e-9))
            ):
                at = passed(last, effective_at)
                made = GroupShares(name, limit, effective_at, at, _allotments(parts))
            else:
                made = last
            if made is not last:
                self._changed_at[name] = wall
            found.append(made)
        return tuple(found)

    def forget(self, said: Set[str], wall: float) -> None:
        """Forget limits that were taken back: programs may set and take back any number.

        Args:
            said: groups of which the last message tells.
            wall: now.
        """
        self._untold_since = {
            name: self._untold_since.get(name, wall)
            for name, limit in self._limits.items()
            if limit is None and name not in said
        }
        for name, since in self._untold_since.items():
            if wall - since >= REMEMBERED_SECONDS:
                del self._limits[name]
                self._changed_at.pop(name, None)

    def _is_due(
        self,
        last: GroupShares,
        parts: Mapping[int, float],
        live: frozenset[int],
        wall: float,
        least_seconds: float,
    ) -> bool:
        """Whether other shares are worth a change now."""
        had = {allotment.shard: allotment.share for allotment in last.allotments}
        if parts.keys() - had.keys():
            return True
        if had.keys() - live:
            return bool(parts)
        moved = sum(max(part - had.get(shard, 0.0), 0.0) for shard, part in parts.items())
        since = wall - self._changed_at.setdefault(last.group, wall)
        return moved > MATERIAL_SHARE and since >= least_seconds


class GroupReports:
    """What the live shards say of groups: each report is looked through once."""

    def __init__(
        self,
        shards: Mapping[int, Shard],
        live: frozenset[int],
        groups_of: Callable[[DemandCurve], Iterable[GroupPages | NamedPages]],
    ) -> None:
        """Look through the reports.

        Args:
            shards: all known ones.
            live: those that are not silent.
            groups_of: which groups of a report are meant.
        """
        self.missing: list[int] = []
        """Shards that have not reported yet."""
        self.pages: dict[str, dict[int, int]] = {}
        """By group and shard."""
        for number in live:
            curve = shards[number].curve
            if curve is None:
                self.missing.append(number)
                continue
            for of in groups_of(curve):
                pages = self.pages.setdefault(of.group, {})
                pages[number] = pages.get(number, 0) + of.pages

    def pages_of(self, group: str) -> dict[int, int | None]:
        """Pages of a group in each shard that has any; None: the shard has not reported yet."""
        return dict.fromkeys(self.missing) | self.pages.get(group, {})


def parts_of(had: Mapping[int, float], reported: Mapping[int, int | None]) -> dict[int, float]:
    """The part of each shard that has pages of a group.

    Args:
        had: parts of shards until now.
        reported: pages by shard; None: it has not reported yet, and keeps its part.
    """
    kept = {number: had.get(number, 0.0) for number, count in reported.items() if count is None}
    kept = {number: share for number, share in kept.items() if share > 0.0}
    pages = {number: count for number, count in reported.items() if count}
    rest, total = max(1.0 - sum(kept.values()), 0.0), sum(pages.values())
    parts = {
        number: rest * (EVENLY / len(pages) + (1.0 - EVENLY) * count / total)
        for number, count in pages.items()
    }
    rounded = {number: int(part * _STEPS) / _STEPS for number, part in parts.items()}
    return kept | {number: part for number, part in rounded.items() if part > 0.0}


def _allotments(parts: Mapping[int, float]) -> list[Allotment]:
    return [Allotment(shard, part) for shard, part in sorted(parts.items()) if part > 0.0]
