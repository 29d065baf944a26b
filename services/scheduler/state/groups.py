"""Hosts that share a limit: which hosts of the shard are of a group, and when it may be crawled.

A host may be of two that have one: that of its domain, and that which outcomes name
(`shared.rules.host_groups`).

A limit is a sequence of slots (`shared.pacing.groups`), of which some are the shard's. A slot is
for one crawl, of whichever host of the group has the page that is worth most. What is not used is
kept for a while, as the shard's share of the budget may bring it no turn in between; but never more
than one, so that after a quiet time there is no burst.
"""

import math
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.changes import Changes
from services.scheduler.state.group_lines import GroupLines
from services.scheduler.state.group_rows import default_rows, divide, own_rows, part_of
from services.scheduler.state.host_domains import HostDomains
from services.scheduler.state.hosts import Hosts
from services.scheduler.state.named_groups import NOT_NAMED, NamedGroups
from services.scheduler.state.rows import GROUP, NO_GROUP, NO_HOST, Rows
from services.scheduler.state.selector import Selector
from shared.contracts.shares import MOST_DIVIDED, MOST_REPORTED, DefaultShares, NamedPages
from shared.pacing.groups import NO_LIMITS, Limits, have_same_slots
from shared.policy.compiled import compiled

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

    def is_held(self, asked: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which hosts share a limit with others, and may ask for more together than it lets.

        Args:
            asked: crawls per second that each of the first hosts may ask for, at most.
        """
        is_over, known = self.asked_too_much(asked), slice(asked.size)
        return np.asarray(is_over[self.group_of[known]] | is_over[self.named_of[known]])

    def asked_too_much(self, asked: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Of which groups, by number, more may be asked than they let (see `is_held`)."""
        return np.asarray(_asked_too_much(asked, self.group_of, self.named_of, self.groups))

    @classmethod
    def of_hosts(cls, hosts: NDArray[np.float64]) -> Self:
        """No group has a limit."""
        none = np.zeros(hosts.size, np.int32)
        return cls(hosts, none, none, np.full(1, math.inf))

    def copy(self) -> Self:
        """As it is now."""
        if self.groups.size == 1:  # there is no group, but for hosts of none
            return type(self).of_hosts(self.hosts.copy())
        of = self.group_of.copy(), self.named_of.copy()
        return type(self)(self.hosts.copy(), *of, self.groups.copy())


@compiled
def _asked_too_much(
    asked: NDArray[np.float64],
    group_of: NDArray[np.int32],
    named_of: NDArray[np.int32],
    limits: NDArray[np.float64],
) -> NDArray[np.bool_]:
    of_groups = np.zeros(limits.size)
    if limits.size > 1:
        for host in range(asked.size):
            # A group may be that of some by their domain, of others by name.
            of_groups[group_of[host]] += asked[host]
            of_groups[named_of[host]] += asked[host]
    is_over = of_groups > limits
    is_over[NO_GROUP] = False
    return is_over


class _Space(Protocol):
    """What is read of a shard."""

    number: int
    hosts: Hosts
    selector: Selector
    changes: Changes


class GroupLimit(NamedTuple):
    """A limit that a host shares with others."""

    group: str
    crawls_per_second: float
    is_default: bool
    """Whether it is the one of all groups that outcomes name, and not of this one."""


class HostGroups:
    """The groups of a shard that have limits."""

    def __init__(self, shard: _Space) -> None:
        self._shard = shard
        self._hosts = shard.hosts
        self.rows: Rows = np.zeros(1, GROUP)
        """By number of a group: the first is for hosts of none, then come those that have a limit
        of their own, and then, where there is a default, all that outcomes name, by their places
        (`named_groups`). There may be more than are used."""
        self._lines = GroupLines()
        self._limits = NO_LIMITS
        self._numbers: dict[str, int] = {}
        """Of groups that have a limit of their own."""
        self._domains = HostDomains({})
        """Of the same."""
        self._named = NamedGroups()
        self._new = 0
        """Of those that outcomes name: from this place on they have no slot that has begun."""
        self._turns = -1.0
        """Seconds for which slots were kept last."""
        self._looked_at = 0
        """Hosts up to this number have their groups."""

    @property
    def lines(self) -> Rows:
        """By number of a line (`GroupLines`)."""
        return self._lines.rows

    def of(self, host: int) -> list[GroupLimit]:
        """The groups of a host that have limits."""
        row, groups = self._hosts.rows[host], self._limits.groups
        found = []
        for number in (int(row[place]) for place in _PLACES):
            if NO_GROUP < number <= len(groups):
                own = groups[number - 1]
                found.append(GroupLimit(own.group, own.crawls_per_second, False))
            elif number != NO_GROUP:
                name = self._named.name_at(number - 1 - len(groups))
                found.append(GroupLimit(name, float(self.rows[number]["rate"]), True))
        return found

    def named(self, host: int) -> str | None:
        """The group that outcomes say a host is of, whether it has a limit or not."""
        return self._named[host]

    def name(self, host: int, group: str | None) -> None:
        """Outcomes say that a host is of a group; None: of none any more."""
        is_other = self._named.name(host, group)
        self._forget_names()
        if not is_other or not self._any or host >= self._looked_at:
            return
        row = self._hosts.rows[host]
        before = int(row["named"])
        self._look_at(np.array([host]))
        if row["named"] != before:
            self._tell(np.array([host]))

    def pages(self) -> dict[str, int]:
        """How many pages there are of each group that has a limit of its own, and any."""
        groups = self._limits.groups
        if not groups:
            return {}
        hosts, size = self._hosts.known, self.rows.size
        counts = np.zeros(size)
        for of in _PLACES:
            counts += np.bincount(hosts[of], hosts["pages"], size)
        counted = counts[1 : len(groups) + 1].tolist()
        return {g.group: int(count) for g, count in zip(groups, counted, strict=True) if count}

    def named_pages(self) -> list[NamedPages]:
        """What there is of the groups by the default limit that are divided, and of those of which
        hosts wait for it, the largest ones."""
        default, first = self._limits.default, len(self._limits.groups) + 1
        if default is None or not len(self._named):
            return []
        hosts, size = self._hosts.known, self.rows.size
        counts = np.bincount(hosts["named"], hosts["pages"], size)[first:].astype(np.int64)
        waits = np.zeros(size, np.bool_)
        waits[self.lines["named"][self.lines["first"] != NO_HOST]] = True
        waits = waits[first:]
        told = np.zeros(counts.size, np.bool_)
        divided = [self._named.find(of.group) for of in default.divided]
        told[[place for place in divided if 0 <= place < counts.size]] = True
        others = np.flatnonzero(waits & ~told)
        told[others[np.argsort(-counts[others], kind="stable")][: MOST_REPORTED - MOST_DIVIDED]] = 1
        return [
            NamedPages(self._named.name_at(place), int(counts[place]), bool(waits[place]))
            for place in np.flatnonzero(told & (counts > 0)).tolist()
        ]

    def crawl_rates(self, hosts: NDArray[np.float64]) -> CrawlRates:
        """What the hosts can take, of which each can take so many crawls per second."""
        rates = self.room(1.0) - 1.0
        known = self._hosts.known
        return CrawlRates(hosts, known["group"], known["named"], rates)

    def room(self, seconds: float) -> NDArray[np.float64]:
        """Crawls that each group can take in so many seconds, by number."""
        rooms = 1.0 + part_of(self.rows) * seconds
        rooms[NO_GROUP] = math.inf
        return np.asarray(rooms, np.float64)

    def follow(self, limits: Limits, slots_per_second: float, now: float) -> None:
        """Go by these limits from now on.

        Args:
            limits: of all groups.
            slots_per_second: of the budget, that are the shard's.
            now: the time of the next slot of the budget, Unix seconds.
        """
        if limits is not self._limits:
            if limits != self._limits:
                self._tell(self._take(limits))
            self._limits = limits  # to be known at once next time: to compare two takes long
        if not self._any:
            return
        if self._looked_at < len(self._hosts):
            self._look_at(np.arange(self._looked_at, len(self._hosts)))
            self._looked_at = len(self._hosts)
        self._begin_new(now)
        self._keep(TURNS / slots_per_second if slots_per_second > 0.0 else 0.0, now)

    @property
    def _any(self) -> bool:
        """Whether any group has a limit."""
        return bool(self._limits.groups) or self._limits.default is not None

    def _begin_new(self, now: float) -> None:
        """Of groups that are named for the first time the slot that has begun is nobody's: who had
        their hosts before, or forgot them, may have used it."""
        first, count = len(self._limits.groups) + 1, len(self._named)
        default = self._limits.default
        if default is None or self._new >= count:
            return
        # One may have been divided among others before any of its hosts was here.
        divide(self.rows[first:], default, self._shard.number, self._named.find)
        rows = self.rows[first + self._new : first + count]
        begun = np.floor(rows["first_slot"] + np.maximum(now - rows["since"], 0.0) * rows["rate"])
        rows["used"] = np.maximum(rows["used"], begun.astype(np.int64))
        self._new, self._turns = count, -1.0

    def _keep(self, turns: float, now: float) -> None:
        """From now on slots are kept for so many seconds, but for the group's own interval at
        least. One that was over stays so: hosts wait for the next one already."""
        if turns == self._turns:
            return
        rows, self._turns = self.rows, turns
        with np.errstate(divide="ignore"):
            kept = np.maximum(turns, 1.0 / rows["rate"])
        longer = np.flatnonzero((kept > rows["kept"]) & (rows["rate"] > 0.0))
        some = rows[longer]
        over = np.floor(some["first_slot"] + (now - some["kept"] - some["since"]) * some["rate"])
        rows["used"][longer] = np.maximum(some["used"], over.astype(np.int64))
        rows["kept"] = kept

    def _take(self, limits: Limits) -> NDArray[np.int64]:
        """Groups have come or gone, or have other shares; hosts that may be of other groups."""
        before, groups = self._limits, limits.groups
        had = {of.group: place for place, of in enumerate(before.groups)}
        rows = own_rows(groups, self._shard.number)
        for row, group in zip(rows[1:], groups, strict=True):
            place = had.get(group.group)
            if place is not None and before.groups[place] == group:
                for field in ("used", "kept"):
                    row[field] = self.rows[place + 1][field]
        if limits.default is not None:
            others = self._default_rows(limits.default, 2 * len(self._named))
            if have_same_slots(limits.default, before.default):
                known = self.rows[len(before.groups) + 1 :]
                for field in ("used", "kept"):
                    others[field][: self._new] = known[field][: self._new]
            elif before.default is None:
                self._new = 0
            rows = np.concatenate([rows, others])
        numbers = {group.group: place + 1 for place, group in enumerate(groups)}
        is_regrouped = numbers != self._numbers
        is_regrouped |= (limits.default is None) != (before.default is None)
        members, were, self._turns = self._members(), part_of(self.rows), -1.0
        self.rows, self._limits = rows, limits
        if numbers != self._numbers:
            self._numbers, self._domains = numbers, HostDomains(numbers)
        if not is_regrouped:
            self._heed(members)
            is_other = np.ones(max(were.size, rows.size), np.bool_)
            both = min(were.size, rows.size)
            is_other[:both] = part_of(rows[:both]) != were[:both]
            of = self._hosts.rows[members]
            self._shard.changes.told += int((is_other[of["group"]] | is_other[of["named"]]).sum())
            self._shard.selector.touch_lines()
            return members[:0]
        return self._look_again(members)

    def _look_again(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        """Groups have other numbers; hosts that are of any, or were."""
        self._shard.selector.empty_lines()
        self._lines.clear()
        self._looked_at = len(self._hosts)
        self._look_at(np.arange(self._looked_at))
        is_of_any = np.zeros(self._looked_at, np.bool_)
        is_of_any[members] = is_of_any[self._members()] = True
        return np.flatnonzero(is_of_any)

    def _default_rows(self, default: DefaultShares, count: int) -> Rows:
        """Of the groups that outcomes name, with room for so many."""
        rows = default_rows(max(count, 1), default, self._shard.number)
        divide(rows, default, self._shard.number, self._named.find)
        return rows

    def _make_room(self) -> None:
        """There is a row for every group that outcomes name."""
        first, default = len(self._limits.groups) + 1, self._limits.default
        if default is None or first + len(self._named) <= self.rows.size:
            return
        others = self._default_rows(default, 2 * len(self._named))
        others[: self._new] = self.rows[first : first + self._new]
        self.rows = np.concatenate([self.rows[:first], others])

    def _forget_names(self) -> None:
        """Names of which no host is any more are forgotten, if they are many."""
        kept = self._named.forget()
        if kept is None:
            return
        known = kept < self._new
        # Places rise: those that are new stay behind the others.
        before, self._new = self._new, int(known.sum())
        first, default = len(self._limits.groups) + 1, self._limits.default
        if default is None:
            return
        others = self._default_rows(default, 2 * kept.size)
        others[: self._new] = self.rows[first : first + before][kept[known]]
        self.rows = np.concatenate([self.rows[:first], others])
        self._tell(self._look_again(self._members()))

    def _members(self) -> NDArray[np.int64]:
        """Hosts that are of any."""
        known = self._hosts.known
        return np.flatnonzero((known["group"] != NO_GROUP) | (known["named"] != NO_GROUP))

    def _tell(self, hosts: NDArray[np.int64]) -> None:
        """The limits of hosts are others."""
        self._shard.changes.told += hosts.size
        self._shard.selector.touch_hosts(hosts)

    def _look_at(self, hosts: NDArray[np.int64]) -> None:
        """Find the groups of hosts: of all of them at once, as there may be a million."""
        self._make_room()
        rows = self._hosts.rows
        group = self._domains.numbers_of(self._hosts.names, hosts)
        named = self._numbers_at(self._named.places_of(hosts))
        named[named == group] = NO_GROUP
        rows["group"][hosts], rows["named"][hosts] = group, named
        rows["line"][hosts] = self._lines.of(group, named)
        self._heed(hosts)

    def _numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.int32]:
        """Numbers of the groups that outcomes name, by their places; some may be `NOT_NAMED`."""
        first, own = len(self._limits.groups) + 1, self._numbers
        numbers = np.full(len(self._named) + 1, NO_GROUP, np.int32)  # the last: of `NOT_NAMED`
        if self._limits.default is not None:
            numbers[:NOT_NAMED] = np.arange(first, first + len(self._named))
        if places.size <= len(own):
            for place in set(places.tolist()) - {NOT_NAMED}:
                numbers[place] = own.get(self._named.name_at(place), numbers[place])
        else:
            for name, number in own.items():
                if (place := self._named.find(name)) != NOT_NAMED:
                    numbers[place] = number
        return numbers[places]

    def _heed(self, hosts: NDArray[np.int64]) -> None:
        """Hosts may have been crawled already, before they were of their groups, or by whom had the
        shard before: as one of the slots that have come by then."""
        for of in _PLACES:
            numbers = self._hosts.rows[of][hosts]
            times = self._hosts.rows["filled_at"][hosts]
            counts = (numbers != NO_GROUP) & (times > self.rows["since"][numbers])
            times, numbers = times[counts], numbers[counts]
            rows = self.rows[numbers]
            used = np.floor(rows["first_slot"] + (times - rows["since"]) * rows["rate"])
            np.maximum.at(self.rows["used"], numbers, used.astype(np.int64))
