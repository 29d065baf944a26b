"""The loop of every policy that crawls the page of the greatest value, compiled.

No slot looks at every page. Values rise with time unless something happens to the page, so a
page's value at the end of a stretch of slots bounds it throughout. Two nested stretches keep the
work small: at the start of a long one all pages are bounded and the best listed; at the start of
a short one the listed are bounded again and the best shortlisted; a slot looks at the shortlist,
where only pages whose bound exceeds the best value so far are evaluated. *Certificate*: if the
best value reaches the greatest bound left outside, it is the greatest of all; if not, the slot
looks at every page. So the choice always equals the full scan's.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import PRODUCTION, SMOOTHED, TOKENS_DEPTH, Columns
from services.replay.learning import learn_from_crawl
from services.replay.values import unit_value
from shared.policy.compiled import compiled
from shared.policy.estimation.smoothed import PSEUDO_DAYS, PSEUDO_SIGNALS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LONG_STRETCH = 512
SHORT_STRETCH = 24
"""Slots."""

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
        return FIRST_COPY * (1.0 + columns.importance[page])
    if not columns.importance[page] > 0.0:
        return 0.0
    return columns.importance[page] * unit_value(
        rules.value,
        rules.terms,
        columns.alpha[page] * columns.multiplier[page],
        columns.kappa[page, 0],
        columns.gamma[page],
        now - columns.last_crawl[page],
        columns.signals[page],
    )


@compiled
def free_tokens(columns: Columns, host: int, now: float) -> float:
    """Crawls that a host allows now."""
    if columns.limit[host] == np.inf:
        return np.inf
    saved = columns.tokens[host] + (now - columns.filled[host]) * columns.limit[host]
    return min(saved, TOKENS_DEPTH)


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


@compiled
def _take_signal(columns: Columns, rules: Rules, page: int, day: float) -> None:
    if not rules.uses_signals:
        return
    columns.all_signals[page] += 1.0
    if day > columns.last_crawl[page] + rules.signal_delay_days or not columns.held[page]:
        columns.signals[page] += 1.0
    if rules.learner != 0:
        # One page of estimation.smoothed.signal_rates, as the estimator worker calls it.
        watched = day - columns.born[page] + PSEUDO_DAYS
        columns.gamma[page] = (columns.all_signals[page] + PSEUDO_SIGNALS) / watched


@compiled
def _best_of(
    columns: Columns, rules: Rules, pages: Integers, size: int, bounds: Floats, now: float
) -> tuple[int, float]:
    best, choice = -1.0, -1
    for index in range(size):
        page = pages[index]
        if bounds[page] <= best or free_tokens(columns, columns.host[page], now) < 1.0:
            continue
        value = value_of(columns, rules, page, now)
        if value > best:
            best, choice = value, page
    return choice, best


@compiled
def crawl_slots(
    columns: Columns,
    rules: Rules,
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
    count = columns.importance.size
    everything = np.arange(count)
    bounds = np.zeros(count)
    unbounded = np.full(count, np.inf)
    shortlist = np.empty(2 * count + 4 * LONG_STRETCH + SPARE, np.int64)
    longlist, outside_long, outside = everything, -np.inf, -np.inf
    size, full_scans = 0, 0
    is_long, is_short = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    joined = np.empty(count, np.int64)
    joined_size = 0
    for slot in range(first, stop):
        now = slot_days[slot]
        begin = slot - first
        short_end = slot_days[min(slot + SHORT_STRETCH - begin % SHORT_STRETCH, stop) - 1]
        if begin % LONG_STRETCH == 0:
            last = min(slot + LONG_STRETCH, stop) - 1
            for page in range(count):
                bounds[page] = value_of(columns, rules, page, slot_days[last])
            wanted = 3 * LONG_STRETCH + SPARE
            longlist, outside_long = listed(
                columns, bounds, everything, wanted, now, slot_days[last]
            )
            is_long[:] = False
            is_long[longlist] = True
            joined_size = 0
        if begin % SHORT_STRETCH == 0:
            among = np.concatenate((longlist, joined[:joined_size]))
            for page in among:
                bounds[page] = value_of(columns, rules, page, short_end)
            wanted = 3 * SHORT_STRETCH + SPARE
            chosen, outside = listed(columns, bounds, among, wanted, now, short_end)
            outside = max(outside, outside_long)
            size = chosen.size
            shortlist[:size] = chosen
            is_short[:] = False
            is_short[chosen] = True
        while event < event_days.size and event_days[event] <= now:
            page = event_pages[event]
            if event_kinds[event] == 0:
                columns.changed[page] = columns.changed[page] or (
                    event_days[event] > columns.born[page]
                )
            elif event_days[event] >= columns.born[page]:
                _take_signal(columns, rules, page, event_days[event])
                bounds[page] = value_of(columns, rules, page, short_end)
                if not is_short[page]:
                    is_short[page] = True
                    shortlist[size] = page
                    size += 1
                if not is_long[page]:
                    is_long[page] = True
                    joined[joined_size] = page
                    joined_size += 1
            event += 1
        choice, best = _best_of(columns, rules, shortlist, size, bounds, now)
        if best < outside:
            full_scans += 1
            choice, best = _best_of(columns, rules, everything, count, unbounded, now)
        crawled[slot] = choice
        if choice < 0:
            continue
        _take_token(columns, columns.host[choice], now)
        learn_from_crawl(columns, rules.learner, rules.bursts, choice, now)
        bounds[choice] = value_of(columns, rules, choice, short_end)
        if not is_short[choice]:
            # Found by a full scan; from now on its bound is in the lists like the others'.
            is_short[choice] = True
            shortlist[size] = choice
            size += 1
        if not is_long[choice]:
            is_long[choice] = True
            joined[joined_size] = choice
            joined_size += 1
    return event, full_scans
