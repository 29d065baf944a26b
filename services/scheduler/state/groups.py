"""Hosts that share a limit: which hosts of the shard are of a group, and when it may be crawled.

A limit is a sequence of slots (`shared.pacing.groups`), of which some are the shard's. A slot is
for one crawl, of whichever host of the group has the page that is worth most. What is not used is
kept for a while, as the shard's share of the budget may bring it no turn in between; but never more
than one, so that after a quiet time there is no burst.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.hosts import Hosts
from services.scheduler.state.rows import GROUP, NEVER, NO_GROUP, Rows
from services.scheduler.state.selector import Selector
from shared.contracts.messages import GroupShares
from shared.pacing.groups import Groups, interval_of
from shared.rules.host_groups import group_of

TURNS: Final = 3.0
"""A slot is kept for so many turns of the shard: two of them are never further apart."""


class CrawlRates(NamedTuple):
    """Crawls per second that the hosts of a shard can take, each and together."""

    hosts: NDArray[np.float64]
    group_of: NDArray[np.int32]
    """By host: the number of its group."""
    groups: NDArray[np.float64]
    """By number of a group: of all its hosts in the shard; of those of none: any."""

    @classmethod
    def of_hosts(cls, hosts: NDArray[np.float64]) -> Self:
        """No group has a limit."""
        return cls(hosts, np.zeros(hosts.size, np.int32), np.full(1, math.inf))

    def copy(self) -> Self:
        """As it is now."""
        return type(self)(self.hosts.copy(), self.group_of.copy(), self.groups.copy())


class _Space(Protocol):
    """What is read of a shard."""

    number: int
    hosts: Hosts
    selector: Selector
    parameter_changes: int


class HostGroups:
    """The groups of a shard that have limits."""

    def __init__(self, shard: _Space) -> None:
        self._shard = shard
        self._hosts = shard.hosts
        self.rows: Rows = np.zeros(1, GROUP)
        """By number of a group; the first is for hosts of none."""
        self._groups: Groups = ()
        self._numbers: dict[str, int] = {}
        self._looked_at = 0
        """Hosts up to this number have their groups."""

    def of(self, host: int) -> GroupShares | None:
        """The group of a host."""
        number = int(self._hosts.rows[host]["group"])
        return self._groups[number - 1] if number != NO_GROUP else None

    def pages(self) -> dict[str, int]:
        """How many pages there are of each group that has any."""
        if not self._groups:
            return {}
        hosts = self._hosts.known
        counts = np.bincount(hosts["group"], hosts["pages"], len(self._groups) + 1)[1:]
        return {
            group.group: int(count)
            for group, count in zip(self._groups, counts, strict=True)
            if count
        }

    def crawl_rates(self, hosts: NDArray[np.float64]) -> CrawlRates:
        """What the hosts can take, of which each can take so many crawls per second."""
        rates = self.room(1.0) - 1.0
        return CrawlRates(hosts, self._hosts.known["group"], rates)

    def room(self, seconds: float) -> NDArray[np.float64]:
        """Crawls that each group can take in so many seconds, by number."""
        rooms = 1.0 + self.rows["rate"] * (self.rows["high"] - self.rows["low"]) * seconds
        rooms[NO_GROUP] = math.inf
        return np.asarray(rooms, np.float64)

    def follow(self, groups: Groups, slots_per_second: float, now: float) -> None:
        """Go by these limits from now on.

        Args:
            groups: all that have limits.
            slots_per_second: of the budget, that are the shard's.
            now: the time of the next slot of the budget, Unix seconds.
        """
        if groups is not self._groups and groups != self._groups:
            self._tell(self._take(groups))
        if not groups:
            return
        if self._looked_at < len(self._hosts):
            self._look_at(range(self._looked_at, len(self._hosts)))
            self._looked_at = len(self._hosts)
        self._keep(TURNS / slots_per_second if slots_per_second > 0.0 else 0.0, now)

    def _keep(self, turns: float, now: float) -> None:
        """From now on slots are kept for so many seconds, but for the group's own interval at
        least. One that was over stays so: hosts wait for the next one already."""
        rows = self.rows
        with np.errstate(divide="ignore"):
            kept = np.maximum(turns, 1.0 / rows["rate"])
        longer = np.flatnonzero((kept > rows["kept"]) & (rows["rate"] > 0.0))
        some = rows[longer]
        over = np.floor(some["first_slot"] + (now - some["kept"] - some["since"]) * some["rate"])
        rows["used"][longer] = np.maximum(some["used"], over.astype(np.int64))
        rows["kept"] = kept

    def _take(self, groups: Groups) -> list[int]:
        """Groups have come or gone, or have other shares; their hosts of before and now."""
        before = {group.group: place for place, group in enumerate(self._groups)}
        rows = np.zeros(len(groups) + 1, GROUP)
        for row, group in zip(rows[1:], groups, strict=True):
            row["rate"], row["since"] = group.crawls_per_second, group.since
            row["low"], row["high"] = interval_of(group, self._shard.number)
            # Slots up to `first_slot` are of before, and nobody's.
            row["first_slot"], row["used"] = group.first_slot, math.floor(group.first_slot)
            row["kept"] = math.inf
            place = before.get(group.group)
            if place is not None and self._groups[place] == group:
                row["used"] = self.rows[place + 1]["used"]
                row["kept"] = self.rows[place + 1]["kept"]
        members = np.flatnonzero(self._hosts.known["group"])
        numbers = {group.group: place + 1 for place, group in enumerate(groups)}
        is_regrouped = numbers != self._numbers
        self.rows, self._groups, self._numbers = rows, groups, numbers
        if not is_regrouped:
            self._heed(members)
            return list(members.tolist())
        self._looked_at = len(self._hosts)
        self._look_at(range(self._looked_at))
        both = np.union1d(members, np.flatnonzero(self._hosts.known["group"]))
        return list(both.tolist())

    def _tell(self, hosts: Sequence[int]) -> None:
        """The limits of hosts are others."""
        self._shard.parameter_changes += len(hosts)
        for host in hosts:
            self._shard.selector.touch_host(host)

    def _look_at(self, hosts: Sequence[int]) -> None:
        """Find the groups of hosts."""
        rows, names, numbers = self._hosts.rows, self._hosts.names, self._numbers
        for host in hosts:
            name = group_of(names[host], numbers)
            rows[host]["group"] = NO_GROUP if name is None else numbers[name]
        self._heed(np.array(hosts, np.int64))

    def _heed(self, hosts: NDArray[np.int64]) -> None:
        """Hosts may have been crawled already, before they were of their groups, or by whom had the
        shard before: as one of the slots that have come by then."""
        latest = np.full(self.rows.size, NEVER)
        np.maximum.at(
            latest, self._hosts.rows["group"][hosts], self._hosts.rows["filled_at"][hosts]
        )
        for row, time in zip(self.rows[1:], latest[1:].tolist(), strict=True):
            if time > row["since"]:
                number = row["first_slot"] + (time - row["since"]) * row["rate"]
                row["used"] = max(row["used"], math.floor(number))
