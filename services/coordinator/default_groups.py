"""The limit of every group that outcomes name, and how the shards share it. Pure: times are
arguments.

Nobody knows all groups, and there may be a million. So all shards have equal parts of each, until
hosts of one wait: a shard that says so has the group listed, then all shards say how many pages of
it they have, and it is divided between those that have any; who alone has some has all of it. A
change of shares costs the slot that has begun, of all groups: they are changed together, and
seldom.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from itertools import islice
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from services.coordinator.allotment import Shard
from services.coordinator.groups import MATERIAL_SHARE, GroupReports, parts_of
from shared.contracts.shares import MOST_DIVIDED, DefaultShares, DividedGroup
from shared.pacing.groups import passed

LEAST_SECONDS: Final = 10.0
"""Between two changes of shares (wall), or ..."""

LEAST_SLOTS: Final = 20.0
"""... so many slots of the limit: they cost a twentieth of it at most."""

SETTLED_SECONDS: Final = 5.0
"""So long (wall) after it was listed all shards have said what they have of a group."""

ROOM_BYTES: Final = 100_000
"""For the divided groups in a message that has room for as many others besides."""

_GROUP_BYTES: Final = 120
_SHARE_BYTES: Final = 16
"""Of one group, and of one shard of it, at most."""

_STAYS: Final = 2
"""One that is divided is left out for one that has so many times as many pages only."""


class DefaultLimit:
    """The limit of groups that have none of their own."""

    def __init__(self, crawls_per_second: float | None) -> None:
        """Start knowing no group.

        Args:
            crawls_per_second: of each group; None: there is no limit.
        """
        self._rate = crawls_per_second
        self._listed_at: dict[str, float] = {}
        """When a group was listed, wall seconds."""

    def next(
        self,
        before: DefaultShares | None,
        own: Collection[str],
        shards: Mapping[int, Shard],
        live: frozenset[int],
        effective_at: float,
        wall: float,
        speed: float,
    ) -> DefaultShares | None:
        """The limit and the shares that should hold from a time on.

        Args:
            before: what was said last.
            own: groups that have limits of their own.
            shards: all known ones.
            live: those that are not silent.
            effective_at: clock seconds.
            wall: now.
            speed: clock seconds in one of the wall.
        """
        rate = self._rate
        if rate is None:
            return None
        count = max([0, *shards]) + 1
        if before is None:
            return DefaultShares(rate, effective_at, 0.0, count)
        reports = GroupReports(shards, live, attrgetter("named"))
        listed = self._list(before, own, reports, _waiting(shards, live), wall)
        is_other = rate != before.crawls_per_second or count > before.shards
        least = max(LEAST_SECONDS * speed, LEAST_SLOTS / rate)
        if not is_other and effective_at < before.since + least:
            return _listing(before, listed)
        # Those for which there is no room are not divided, and so are no news either.
        divided = fitting(self._divide(of, reports, wall) for of in listed)
        if not is_other and not _is_material(before.divided, divided, live):
            return _listing(before, listed)
        first = passed(before, effective_at)
        count = max(count, before.shards)
        return DefaultShares(rate, effective_at, first, count, divided)

    def _list(
        self,
        before: DefaultShares,
        own: Collection[str],
        reports: GroupReports,
        waiting: Set[str],
        wall: float,
    ) -> list[DividedGroup]:
        """The groups that are divided, or should be, the largest first."""
        listed = {of.group: of for of in before.divided if of.group not in own}
        for name in waiting - listed.keys() - set(own):
            listed[name] = DividedGroup(name, [], [])
        pages = {name: sum(reports.pages.get(name, {}).values()) for name in listed}
        gone = [name for name in listed if not reports.missing and not pages[name]]
        for name in gone:
            if wall >= self._listed_at.setdefault(name, wall) + SETTLED_SECONDS:
                del listed[name]
        worth = {name: pages[name] * (_STAYS if of.shards else 1) for name, of in listed.items()}
        largest = sorted(listed, key=lambda name: (-worth[name], name))[:MOST_DIVIDED]
        self._listed_at = {name: self._listed_at.get(name, wall) for name in largest}
        return [listed[name] for name in largest]

    def _divide(self, of: DividedGroup, reports: GroupReports, wall: float) -> DividedGroup:
        """A group with the shares that it should have."""
        if not of.shards and wall < self._listed_at[of.group] + SETTLED_SECONDS:
            return of
        had = dict(zip(of.shards, of.shares, strict=False))
        parts = parts_of(had, reports.pages_of(of.group))
        return DividedGroup(of.group, sorted(parts), [parts[number] for number in sorted(parts)])


def _waiting(shards: Mapping[int, Shard], live: frozenset[int]) -> set[str]:
    """Groups of which hosts wait for the limit."""
    curves = (shards[number].curve for number in live)
    return {of.group for curve in curves if curve is not None for of in curve.named if of.waits}


def _listing(before: DefaultShares, listed: list[DividedGroup]) -> DefaultShares:
    """What was said last, and which groups shards should tell of besides: no share is another."""
    names = {of.group for of in before.divided}
    undivided = [of for of in listed if of.group not in names]
    if not undivided:
        return before
    # Those that nobody divided yet make room, no others.
    kept = [of for of in before.divided if of.shards or of in listed]
    return replace(before, divided=fitting(kept + undivided))


def fitting(divided: Iterable[DividedGroup]) -> list[DividedGroup]:
    """The first ones, for which there is room; the others are not looked at."""
    room, found = ROOM_BYTES, list[DividedGroup]()
    for of in islice(divided, MOST_DIVIDED):
        room -= _GROUP_BYTES + _SHARE_BYTES * len(of.shards)
        if room < 0:
            break
        found.append(of)
    return found


def _is_material(before: list[DividedGroup], now: list[DividedGroup], live: frozenset[int]) -> bool:
    """Whether other shares are worth what a change of them costs."""
    had = {of.group: dict(zip(of.shards, of.shares, strict=False)) for of in before}
    for of in now:
        last = had.get(of.group, {})
        have = dict(zip(of.shards, of.shares, strict=True))
        moved = sum(max(part - last.get(number, 0.0), 0.0) for number, part in have.items())
        if moved > MATERIAL_SHARE or have.keys() - last.keys() or (have and last.keys() - live):
            return True
    return False
