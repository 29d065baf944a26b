"""Hosts that share a limit: which hosts of the shard are of a group, and when it may be crawled.

A host may be of two that have one: that of its domain, and that which outcomes name
(`shared.rules.host_groups`).

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
from services.scheduler.state.named_groups import NamedGroups
from services.scheduler.state.rows import GROUP, LINE, NEVER, NO_GROUP, NO_HOST, NO_LINE, Rows
from services.scheduler.state.selector import Selector
from shared.contracts.messages import GroupShares
from shared.pacing.groups import Groups, interval_of
from shared.rules.host_groups import group_of
from shared.store.reserved import grown

TURNS: Final = 3.0
"""A slot is kept for so many turns of the shard: two of them are never further apart."""


_PLACES: Final = ("group", "named")
"""Where hosts have the numbers of their groups."""


class CrawlRates(NamedTuple):
    """Crawls per second that the hosts of a shard can take, each and together."""

    hosts: NDArray[np.float64]
    group_of: NDArray[np.int32]
    """By host: the number of its domain's group."""
    named_of: NDArray[np.int32]
    """By host: that of the group that outcomes name, if it is another one."""
    groups: NDArray[np.float64]
    """By number of a group: of all its hosts in the shard; of those of none: any."""

    @property
    def is_grouped(self) -> NDArray[np.bool_]:
        """Which hosts share a limit with others."""
        return np.asarray((self.group_of != NO_GROUP) | (self.named_of != NO_GROUP))

    @classmethod
    def of_hosts(cls, hosts: NDArray[np.float64]) -> Self:
        """No group has a limit."""
        none = np.zeros(hosts.size, np.int32)
        return cls(hosts, none, none, np.full(1, math.inf))

    def copy(self) -> Self:
        """As it is now."""
        of = self.group_of.copy(), self.named_of.copy()
        return type(self)(self.hosts.copy(), *of, self.groups.copy())


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
        self.lines: Rows = _free_lines(1)
        """By number of a line; the first is for hosts of none. There may be more than are used."""
        self._line_numbers: dict[tuple[int, int], int] = {}
        """By the numbers of its groups."""
        self._groups: Groups = ()
        self._numbers: dict[str, int] = {}
        self._named = NamedGroups()
        self._looked_at = 0
        """Hosts up to this number have their groups."""

    def of(self, host: int) -> list[GroupShares]:
        """The groups of a host that have limits."""
        row = self._hosts.rows[host]
        numbers = [int(row[place]) for place in _PLACES]
        return [self._groups[number - 1] for number in numbers if number != NO_GROUP]

    def named(self, host: int) -> str | None:
        """The group that outcomes say a host is of, whether it has a limit or not."""
        return self._named[host]

    def name(self, host: int, group: str | None) -> None:
        """Outcomes say that a host is of a group; None: of none any more."""
        is_other = self._named.name(host, group)
        if not is_other or not self._numbers or host >= self._looked_at:
            return
        row = self._hosts.rows[host]
        before = int(row["named"])
        self._look_at([host])
        if row["named"] != before:
            self._tell([host])

    def pages(self) -> dict[str, int]:
        """How many pages there are of each group that has any."""
        if not self._groups:
            return {}
        hosts, size = self._hosts.known, len(self._groups) + 1
        counts = np.zeros(size)
        for of in _PLACES:
            counts += np.bincount(hosts[of], hosts["pages"], size)
        return {
            group.group: int(count)
            for group, count in zip(self._groups, counts[1:], strict=True)
            if count
        }

    def crawl_rates(self, hosts: NDArray[np.float64]) -> CrawlRates:
        """What the hosts can take, of which each can take so many crawls per second."""
        rates = self.room(1.0) - 1.0
        known = self._hosts.known
        return CrawlRates(hosts, known["group"], known["named"], rates)

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
        """Groups have come or gone, or have other shares; hosts that may be of other groups."""
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
        members = self._members()
        numbers = {group.group: place + 1 for place, group in enumerate(groups)}
        is_regrouped = numbers != self._numbers
        self.rows, self._groups, self._numbers = rows, groups, numbers
        if not is_regrouped:
            self._heed(members)
            self._shard.parameter_changes += members.size
            self._shard.selector.touch_lines()
            return []
        self._shard.selector.empty_lines()
        self.lines = _free_lines(1)
        self._line_numbers.clear()
        self._looked_at = len(self._hosts)
        self._look_at(range(self._looked_at))
        both = np.union1d(members, self._members())
        return list(both.tolist())

    def _members(self) -> NDArray[np.int64]:
        """Hosts that are of any."""
        known = self._hosts.known
        return np.flatnonzero((known["group"] != NO_GROUP) | (known["named"] != NO_GROUP))

    def _tell(self, hosts: Sequence[int]) -> None:
        """The limits of hosts are others."""
        self._shard.parameter_changes += len(hosts)
        for host in hosts:
            self._shard.selector.touch_host(host)

    def _look_at(self, hosts: Sequence[int]) -> None:
        """Find the groups of hosts."""
        rows, names, numbers = self._hosts.rows, self._hosts.names, self._numbers
        for host in hosts:
            domain, named = group_of(names[host], numbers), self._named[host]
            number = NO_GROUP if domain is None else numbers[domain]
            other = NO_GROUP if named is None else numbers.get(named, NO_GROUP)
            rows[host]["group"] = number
            other = NO_GROUP if other == number else other
            rows[host]["named"] = other
            rows[host]["line"] = self._line_of(number, other)
        self._heed(np.array(hosts, np.int64))

    def _line_of(self, group: int, named: int) -> int:
        """The line of hosts of these groups."""
        if group == named == NO_GROUP:
            return NO_LINE
        number = self._line_numbers.setdefault((group, named), len(self._line_numbers) + 1)
        if number >= self.lines.shape[0]:
            used = self.lines.shape[0]
            self.lines = grown(self.lines, 2 * (number + 1))
            self.lines[used:] = _free_lines(1)
        self.lines[number]["group"], self.lines[number]["named"] = group, named
        return number

    def _heed(self, hosts: NDArray[np.int64]) -> None:
        """Hosts may have been crawled already, before they were of their groups, or by whom had the
        shard before: as one of the slots that have come by then."""
        latest = np.full(self.rows.size, NEVER)
        for of in _PLACES:
            rows = self._hosts.rows
            np.maximum.at(latest, rows[of][hosts], rows["filled_at"][hosts])
        for row, time in zip(self.rows[1:], latest[1:].tolist(), strict=True):
            if time > row["since"]:
                number = row["first_slot"] + (time - row["since"]) * row["rate"]
                row["used"] = max(row["used"], math.floor(number))


def _free_lines(count: int) -> Rows:
    """So many lines in which nobody is."""
    lines = np.zeros(count, LINE)
    lines["first"] = NO_HOST
    return lines
