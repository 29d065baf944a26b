"""The loop of every policy that crawls the page of the greatest value, compiled.

No slot looks at every page. Values rise with time unless something happens to the page, so a
page's value at the end of a stretch of slots bounds it throughout. Two nested stretches keep the
work small: at the start of a long one all pages are bounded and the best listed; at the start of
a short one the listed are bounded again and the best shortlisted; a slot looks at the shortlist,
where only pages whose bound exceeds the best value so far are evaluated. *Certificate*: if the
best value reaches the greatest bound left outside, it is the greatest of all; if not, the slot
looks at every page. So the choice always equals the full scan's.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import KNOWN, TOKENS_DEPTH, Columns
from services.replay.learning import learn_from_crawl
from services.replay.trace import CHANGE
from services.replay.values import unit_value
from shared.policy.compiled import compiled
from shared.policy.estimation.smoothed import PSEUDO_DAYS, PSEUDO_SIGNALS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SHORT_STRETCH = 24
"""Slots; a long stretch has the geometric mean of it and of the number of pages."""

SPARE = 20
"""Pages listed beyond three for each slot of a stretch."""

FIRST_COPY = 1e100
"""Value of a page without a copy, per unit of importance: before all others."""


class Rules(NamedTuple):
    """What a policy of this family is; all of one replay."""

    value: int
    """Which value: `values`."""
    terms: float
    """Of the approximations."""
    learner: int
    """Where parameters come from: `columns`."""
    uses_signals: bool
    bursts: bool
    signal_delay_days: float
    """Signals that come so soon after a crawl are not counted [N appendix C]."""


@compiled
def value_of(columns: Columns, rules: Rules, page: int, now: float) -> float:
    """The value of crawling a page now; 0 before it is known."""
    if columns.born[page] > now:
        return 0.0
    if not columns.held[page]:
        return float(FIRST_COPY * (1.0 + columns.importance[page]))
    if not columns.importance[page] > 0.0:
        return 0.0
    unit = unit_value(
        rules.value,
        rules.terms,
        columns.alpha[page] * columns.multiplier[page],
        columns.kappa[page, 0],
        columns.gamma[page],
        now - columns.last_crawl[page],
        columns.signals[page],
    )
    return float(columns.importance[page] * unit)


@compiled
def free_tokens(columns: Columns, host: int, now: float) -> float:
    """Crawls that a host allows now."""
    if columns.limit[host] == np.inf:
        return np.inf
    saved = columns.tokens[host] + (now - columns.filled[host]) * columns.limit[host]
    return float(min(saved, TOKENS_DEPTH))


@compiled
def _take_token(columns: Columns, host: int, now: float) -> None:
    if columns.limit[host] < np.inf:
        columns.tokens[host] = free_tokens(columns, host, now) - 1.0
        columns.filled[host] = now


@compiled
def listed(
    columns: Columns, bounds: Floats, among: Integers, wanted: int, begin: float, end: float
) -> tuple[Integers, float]:
    """The `wanted` pages of the greatest bounds, in falling order, and the greatest left outside.

    A limited host takes no more places than it could be crawled, thrice, with some to spare: the
    rest of its pages cannot come first before the stretch ends, and do not count as left outside.
    """
    limited = False
    for host in range(columns.limit.size):
        limited = limited or columns.limit[host] < np.inf
    if among.size <= wanted and not limited:
        return among[np.argsort(-bounds[among])], -np.inf
    if not limited:
        values = bounds[among]
        level = np.partition(values, among.size - wanted)[among.size - wanted]
        chosen = among[values >= level]
        outside = -np.inf
        for index in range(among.size):
            if values[index] < level:
                outside = max(outside, values[index])
        return chosen[np.argsort(-bounds[chosen])], outside
    places = np.empty(columns.limit.size)
    for host in range(places.size):
        allowed = TOKENS_DEPTH + (end - begin) * columns.limit[host]
        places[host] = 3.0 * allowed + SPARE
    order = among[np.argsort(-bounds[among])]
    chosen = np.empty(min(wanted, order.size), np.int64)
    size = 0
    for index in range(order.size):
        page = order[index]
        host = columns.host[page]
        if places[host] < 1.0:
            continue
        if size == chosen.size:
            return chosen, bounds[page]
        places[host] -= 1.0
        chosen[size] = page
        size += 1
    return chosen[:size], -np.inf


class Lists(NamedTuple):
    """The two nested lists of candidates; columns have one row a page."""

    bounds: Floats
    """No less than the page's value until the short stretch ends."""
    far: Floats
    """The same until the long stretch ends; infinite once something happened to the page."""
    long: Integers
    short: Integers
    is_long: NDArray[np.bool_]
    is_short: NDArray[np.bool_]
    sizes: Integers
    """Of the long list, and of the short one."""
    outside: Floats
    """The greatest bound outside the long list, and outside either."""


def new_lists(pages: int) -> Lists:
    """Empty lists, with room for every page."""
    return Lists(
        np.zeros(pages),
        np.zeros(pages),
        np.zeros(pages, np.int64),
        np.zeros(pages, np.int64),
        np.zeros(pages, np.bool_),
        np.zeros(pages, np.bool_),
        np.zeros(2, np.int64),
        np.full(2, -np.inf),
    )


@compiled
def _make_long_list(
    columns: Columns, rules: Rules, lists: Lists, slots: int, now: float, end: float
) -> None:
    for page in range(lists.far.size):
        lists.far[page] = value_of(columns, rules, page, end)
    everything = np.arange(lists.far.size)
    chosen, lists.outside[0] = listed(columns, lists.far, everything, 3 * slots + SPARE, now, end)
    lists.long[: chosen.size] = chosen
    lists.sizes[0] = chosen.size
    lists.is_long[:] = False
    lists.is_long[chosen] = True


@compiled
def _make_short_list(
    columns: Columns, rules: Rules, lists: Lists, level: float, now: float, end: float
) -> None:
    """`level`: below the values of late crawls; pages that cannot reach it stay bounded far."""
    among = lists.long[: lists.sizes[0]]
    for index in range(among.size):
        page = among[index]
        lists.bounds[page] = lists.far[page]
        if lists.far[page] >= level:
            lists.bounds[page] = value_of(columns, rules, page, end)
    wanted = 3 * SHORT_STRETCH + SPARE
    chosen, outside = listed(columns, lists.bounds, among, wanted, now, end)
    lists.outside[1] = max(outside, lists.outside[0])
    lists.short[: chosen.size] = chosen
    lists.sizes[1] = chosen.size
    lists.is_short[:] = False
    lists.is_short[chosen] = True


@compiled
def _admit(columns: Columns, rules: Rules, lists: Lists, page: int, end: float) -> None:
    """Something happened to a page: bound it anew, in both lists."""
    lists.bounds[page] = value_of(columns, rules, page, end)
    lists.far[page] = np.inf
    if not lists.is_long[page]:
        lists.is_long[page] = True
        lists.long[lists.sizes[0]] = page
        lists.sizes[0] += 1
    if not lists.is_short[page]:
        lists.is_short[page] = True
        lists.short[lists.sizes[1]] = page
        lists.sizes[1] += 1


@compiled
def _take_signal(columns: Columns, rules: Rules, page: int, day: float) -> None:
    columns.all_signals[page] += 1.0
    if day > columns.last_crawl[page] + rules.signal_delay_days or not columns.held[page]:
        columns.signals[page] += 1.0
    if rules.learner != KNOWN:
        # One page of estimation.smoothed.signal_rates, as the estimator worker calls it.
        watched = day - columns.born[page] + PSEUDO_DAYS
        columns.gamma[page] = (columns.all_signals[page] + PSEUDO_SIGNALS) / watched


@compiled
def _best_of(
    columns: Columns, rules: Rules, pages: Integers, bounds: Floats, now: float
) -> tuple[int, float]:
    """(page, value) of the greatest value among `pages` whose hosts are free; −1: there is none."""
    best, choice = -1.0, -1
    for page in pages:
        if bounds[page] <= best or free_tokens(columns, columns.host[page], now) < 1.0:
            continue
        value = value_of(columns, rules, page, now)
        if value > best:
            best, choice = value, page
    return choice, best


@compiled
def _take_events(
    columns: Columns,
    rules: Rules,
    lists: Lists,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    now: float,
    end: float,
) -> int:
    """Everything that happened until now; returns the next event."""
    while event < event_days.size and event_days[event] <= now:
        page, day = event_pages[event], event_days[event]
        if event_kinds[event] == CHANGE:
            columns.changed[page] = columns.changed[page] or day > columns.born[page]
        elif rules.uses_signals and day >= columns.born[page]:
            _take_signal(columns, rules, page, day)
            _admit(columns, rules, lists, page, end)
        event += 1
    return event


@compiled
def crawl_slots(
    columns: Columns,
    rules: Rules,
    lists: Lists,
    slot_days: Floats,
    first: int,
    stop: int,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    crawled: Integers,
) -> tuple[int, int]:
    """Fill `crawled[first:stop]`; returns (the next event, slots that needed a full scan)."""
    unbounded = np.full(columns.importance.size, np.inf)
    full_scans, level = 0, -np.inf
    long_stretch = SHORT_STRETCH * int(1.0 + 0.6 * math.sqrt(unbounded.size / SHORT_STRETCH))
    for slot in range(first, stop):
        now, done = slot_days[slot], slot - first
        if done % long_stretch == 0:
            long_end = slot_days[min(slot + long_stretch, stop) - 1]
            _make_long_list(columns, rules, lists, long_stretch, now, long_end)
            level = -np.inf
        end = slot_days[min(slot + SHORT_STRETCH - done % SHORT_STRETCH, stop) - 1]
        if done % SHORT_STRETCH == 0:
            # Half the least value of the long stretch: bounds left far then seldom matter.
            _make_short_list(columns, rules, lists, 0.5 * level, now, end)
        event = _take_events(
            columns, rules, lists, event_days, event_pages, event_kinds, event, now, end
        )
        shortlist = lists.short[: lists.sizes[1]]
        page, best = _best_of(columns, rules, shortlist, lists.bounds, now)
        if best < lists.outside[1]:
            full_scans += 1
            page, best = _best_of(columns, rules, np.arange(unbounded.size), unbounded, now)
        level = best if level < 0.0 else min(level, best)
        crawled[slot] = page
        if page >= 0:
            _take_token(columns, columns.host[page], now)
            learn_from_crawl(columns, rules.learner, rules.bursts, page, now)
            _admit(columns, rules, lists, page, end)
    return event, full_scans
