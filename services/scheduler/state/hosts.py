"""How often a host may be crawled: token buckets, and hosts that asked for a pause.

A bucket holds two tokens, so in any window of w seconds a host is crawled at most 2 + w·rate
times; where robots.txt asks for a delay, or the host fails, it holds one, and no two crawls are
nearer to each other than 1/rate. Hosts of a group with a limit share its slots, of which some are
the shard's (`groups`); one may be of two. Times are clock seconds.
"""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

import numpy as np
from numba.core import types
from numba.extending import overload
from numpy.typing import NDArray

from services.scheduler.state.host_names import UNKNOWN, HostNames
from services.scheduler.state.learned_hosts import LearnedHosts
from services.scheduler.state.rows import HOST, NEVER, NO_GROUP, REMOVED, Rows
from shared.contracts.messages import HostLimit
from shared.contracts.objectives import FRESHNESS
from shared.policy.compiled import compiled
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives
from shared.rules.host_rules import HostRules
from shared.store.reserved import grown

DEPTH: Final = 2.0
"""Tokens that a bucket holds."""

NO_PAGE: Final = -1
"""Row of no page: the end of a host's list."""

Objectives: TypeAlias = NDArray[np.uint8]
"""What the pages of each host are crawled for (`shared.contracts.objectives`)."""

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_PARTS: Final = 2.0**64
"""As in `shared.pacing.slots`: where in [0, 1) a slot's point lies, and so whose it is."""

_MEMORY: Final = 0.2
"""Weight of the newest crawl in a host's typical crawl value."""


def objective_of(page: Any, objectives: Objectives | None) -> int:
    """What a page is crawled for; of a host that these do not know yet, freshness."""
    if objectives is None or page["host"] >= objectives.size:
        return FRESHNESS
    return int(objectives[page["host"]])


@overload(objective_of)  # type: ignore[untyped-decorator]
def _objective_in_kernels(page: Any, objectives: Any) -> Callable[[Any, Any], int]:  # noqa: ARG001 - numba wants the same names
    def freshness(page: Any, objectives: Any) -> int:  # noqa: ARG001
        return FRESHNESS

    def look_up(page: Any, objectives: Any) -> int:
        return int(objectives[page.host]) if page.host < objectives.size else FRESHNESS

    return freshness if objectives is types.none else look_up


@compiled
def usable_from(host: Any) -> float:
    """From when on the host may be crawled; infinite: not before something happens.

    Not before its bucket was filled last: slots of before, which are filled late, would have tokens
    that came after them.
    """
    if not host.rate > 0.0 or (host.most_open > 0 and host.open_left == 0):
        return math.inf
    filled = host.filled_at + max(1.0 - host.tokens, 0.0) / host.rate
    return float(max(filled, host.blocked_until))


@compiled
def depth_of(host: Any) -> float:
    """Tokens that the host's bucket holds."""
    return 1.0 if host.is_paced else DEPTH


@compiled
def refill(host: Any, now: float) -> None:
    """Bring a bucket up to date."""
    if now > host.filled_at:
        if host.rate > 0.0:
            host.tokens = min(depth_of(host), host.tokens + (now - host.filled_at) * host.rate)
        host.filled_at = now


@compiled
def _full_from(host: Any) -> float:
    """From when on the bucket is full."""
    if not host.rate > 0.0:
        return math.inf
    full: float = host.filled_at + max(depth_of(host) - host.tokens, 0.0) / host.rate
    return full


@compiled
def take_token(host: Any, now: float) -> None:
    """Account for a crawl."""
    refill(host, now)
    host.tokens = max(host.tokens - 1.0, 0.0)
    host.open_left = max(host.open_left - 1, 0)


@compiled
def _number_at(group: Any, time: float) -> int:
    """Number of the slot that has come last."""
    number: int = math.floor(group.first_slot + (time - group.since) * group.rate)
    return number


@compiled
def _is_ours(group: Any, number: int) -> bool:
    position = np.float64(np.uint64(number) * _GOLDEN) / _PARTS
    return bool(group.low <= position < group.high)


@compiled
def _slot_for(group: Any, now: float) -> int:
    """Number of the slot that a crawl at a time would use: the last of the shard's that has come,
    if it is kept still, or the next one that comes; the group must have some."""
    number: int = _number_at(group, now)
    oldest = max(group.used + 1, _number_at(group, now - group.kept) + 1)
    while number >= oldest:
        if _is_ours(group, number):
            return number
        number -= 1
    number = max(_number_at(group, now), group.used) + 1
    while not _is_ours(group, number):
        number += 1
    return number


@compiled
def open_from(group: Any, now: float) -> float:
    """From when on a host of the group may be crawled, `now` at the earliest; infinite: not before
    the shares are others."""
    if not (group.rate > 0.0 and group.high > group.low):
        return math.inf
    comes = group.since + (_slot_for(group, now) - group.first_slot) / group.rate
    return float(max(comes, now))


@compiled
def _use_slot(group: Any, now: float) -> None:
    """Account for a crawl."""
    if group.rate > 0.0 and group.high > group.low:
        group.used = _slot_for(group, now)


@compiled
def crawlable_from(host: Any, groups: Rows, now: float) -> float:
    """From when on a host may be crawled, by its own rules and those of its groups; as far as is
    known at `now`, which may be too early."""
    usable: float = usable_from(host)
    if host.group != NO_GROUP:
        usable = max(usable, open_from(groups[host.group], now))
    if host.named != NO_GROUP:
        usable = max(usable, open_from(groups[host.named], now))
    return usable


@compiled
def use_slots(host: Any, groups: Rows, now: float) -> None:
    """Account for a crawl of a host at its groups."""
    if host.group != NO_GROUP:
        _use_slot(groups[host.group], now)
    if host.named != NO_GROUP:
        _use_slot(groups[host.named], now)


@compiled
def note_value(host: Any, value: float) -> None:
    """Remember what a crawled page was worth: the host's multiplier is read off it."""
    host.typical_value += _MEMORY * (value - host.typical_value)


@compiled
def capacity(host: Any, start: float, end: float) -> float:
    """Crawls that a host can take in [start, end]."""
    begin = max(start, host.blocked_until)
    if begin > end or not host.rate > 0.0:
        return 0.0
    tokens = min(depth_of(host), host.tokens + max(begin - host.filled_at, 0.0) * host.rate)
    crawls: float = math.floor(tokens + (end - begin) * host.rate + 1e-6)
    return crawls


@compiled
def list_pages(pages: Rows, records: Rows, hosts: Rows, rows: NDArray[np.int32]) -> None:
    """Put pages on the lists of their hosts."""
    for row in rows:
        host = hosts[pages[row].host]
        records[row].next_of_host = host.first_page
        host.first_page = row
        host.pages += 1


@compiled
def unlist_page(pages: Rows, records: Rows, hosts: Rows, row: int) -> NDArray[np.int32]:
    """A page is removed: take it off the list of its host, some day.

    Lists lead one way only, so they are cleared of removed pages all at once, when half are.

    Returns:
        rows that are on no list any more.
    """
    host = hosts[pages[row].host]
    host.pages -= 1
    host.removed += 1
    freed = np.empty(host.removed, np.int32)
    if 2 * host.removed < host.pages + host.removed:
        return freed[:0]
    count = 0
    last = NO_PAGE
    host.sweep_at = host.sweep_end = 0
    place = host.first_page
    host.first_page = NO_PAGE
    while place != NO_PAGE:
        following = records[place].next_of_host
        if pages[place].status == REMOVED:
            freed[count] = place
            count += 1
        elif last == NO_PAGE:
            host.first_page = last = place
        else:
            records[last].next_of_host = place
            last = place
        place = following
    if last != NO_PAGE:
        records[last].next_of_host = NO_PAGE
    host.removed = 0
    return freed[:count]


@compiled
def pages_of(records: Rows, hosts: Rows, host: int) -> NDArray[np.int32]:
    """Rows of the pages of a host, some removed ones among them."""
    count = hosts[host].pages + hosts[host].removed
    rows, _ = rows_from(records, int(np.int64(hosts[host].first_page)), int(np.int64(count)))
    return rows


@compiled
def rows_from(records: Rows, first: int, count: int) -> tuple[NDArray[np.int32], int]:
    """So many rows on a host's list, from one on; and the one after them."""
    rows = np.empty(count, np.int32)
    row = first
    for place in range(count):
        rows[place] = row
        row = records[row].next_of_host
    return rows, row


class Hosts:
    """The hosts of a shard: names, limits, buckets, and what was learned of them."""

    def __init__(self, default_rate: float, objectives: HostObjectives = FRESHNESS_ALONE) -> None:
        self._default_rate = default_rate
        self._told = objectives
        self.objectives: Objectives | None = np.zeros(64, np.uint8) if objectives else None
        """By host, the same array as long as there is room in it; None: freshness."""
        self.rows: Rows = np.zeros(64, HOST)
        """Those from `len` on are no hosts."""
        self._known: Rows = self.rows[:0]
        self.names = HostNames()
        self.learned = LearnedHosts()
        self._rules: dict[int, HostRules] = {}
        """Of hosts that have any."""
        self._said_at: dict[int, float] = {}
        """When somebody last said something of a host: arrival, Unix seconds."""
        self.failing: set[int] = set()
        """Hosts whose last crawl failed."""
        self.bounded: set[int] = set()
        """Hosts of which operators let only so many requests be open (`open_requests`)."""
        self._pauses: list[tuple[float, int]] = []
        """When pauses end, and whose, the first first; some are other ones by now."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def known(self) -> Rows:
        """Rows of the hosts; the same array as long as there are no more."""
        count = len(self.names)
        if self._known.size != count:
            self._known = self.rows[:count]
        return self._known

    def find(self, name: str) -> int | None:
        """Number of a host, if it is known."""
        index = self.names.find(name)
        return None if index == UNKNOWN else index

    def intern(self, name: str) -> int:
        """Number of a host, which is made known with the default limit."""
        index = self.names.find(name)
        if index != UNKNOWN:
            return index
        index = self.names.add(name)
        self._begin(index, [name])
        return index

    def load(self, names: Sequence[str], ids: NDArray[np.int64]) -> None:
        """Make hosts known with the default limit, each once; there is none yet.

        One after the other would take a scheduler ten times as long.

        Args:
            names: of the hosts with the numbers 0, 1, …
            ids: theirs.
        """
        self.names = HostNames.of(names, ids)
        self._begin(0, names)

    def _begin(self, first: int, names: Sequence[str]) -> None:
        """Nothing is known yet of hosts that have followed each other from a number on."""
        end = first + len(names)
        if end > self.rows.size:
            self.rows = grown(self.rows, max(end, 2 * self.rows.size))
        self.learned.add(first, len(names))
        rows = self.rows[first:end]
        rows["first_page"] = NO_PAGE
        rows["rate"] = self._default_rate
        rows["tokens"] = DEPTH
        rows["filled_at"] = rows["blocked_until"] = rows["expires_at"] = NEVER
        if self.objectives is not None:
            if end > self.objectives.size:
                self.objectives = grown(self.objectives, max(end, 2 * self.objectives.size))
            self.objectives[first:end] = [self._told.of(name) for name in names]

    def change_rules(self, index: int) -> HostRules:
        """The rules of a host, to be changed; `apply_rules` must follow."""
        return self._rules.setdefault(index, HostRules())

    def say(self, index: int, message: HostLimit, said_at: float) -> None:
        """Somebody says something of a host, which arrived then; `apply_rules` must follow."""
        self.change_rules(index).take(message)
        self._said_at[index] = said_at

    def apply_rules(self, index: int, now: float) -> None:
        """The rules of a host were changed: the strictest hold from now on."""
        rules, row = self._rules[index], self.rows[index]
        refill(row, min(now, _full_from(row)))
        effective = rules.effective(self._default_rate)
        if effective.is_paced and effective.rate < (row["rate"] if row["is_paced"] else math.inf):
            # The gap that is heard of now, or that grew, holds for the very next crawl.
            row["tokens"], row["filled_at"] = 0.0, max(row["filled_at"], now)
        until = effective.blocked_until
        if NEVER < until < math.inf and until != row["blocked_until"]:
            heappush(self._pauses, (until, index))
        row["rate"], row["blocked_until"] = effective.rate, until
        row["own_limit"] = effective.rate_rule != "default"
        row["is_paced"] = effective.is_paced
        if row["most_open"] != effective.most_open:
            row["most_open"] = row["open_left"] = effective.most_open
        if effective.most_open:
            self.bounded.add(index)
        else:
            self.bounded.discard(index)
        row["tokens"] = min(row["tokens"], depth_of(row))
        if rules.is_failing:
            self.failing.add(index)
        else:
            self.failing.discard(index)

    def ended_pauses(self, now: float) -> dict[int, float]:
        """Hosts whose pause is over by now, and since when; each is told once."""
        ended = {}
        while self._pauses and self._pauses[0][0] <= now:
            until, index = heappop(self._pauses)
            if self.rows["blocked_until"][index] == until:
                ended[index] = until
        return ended

    def forget(self, index: int, time: float) -> None:
        """Nothing is known of a host, but what was said of it since a time (Unix seconds); its
        bucket stays as it is."""
        rules = self._rules.pop(index, HostRules())
        is_said = self._said_at.get(index, NEVER) > time and rules.said.says_anything
        self._rules[index] = rules.said if is_said else HostRules()
        self.apply_rules(index, NEVER)
        if not is_said:
            del self._rules[index]
            self._said_at.pop(index, None)
        self.learned.forget(index)

    def load_rules(self, index: int, rules: HostRules, said_at: float = NEVER) -> None:
        """The rules of a host, as the database has them."""
        self._rules[index], self._said_at[index] = rules, said_at
        self.apply_rules(index, NEVER)

    def load_recovery(self, index: int, rules: HostRules) -> None:
        """A host that failed is well again, as the database has it; it has no other rules."""
        self._rules[index] = rules
