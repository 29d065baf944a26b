"""The schedules that people run today, from their documentation, as compiled next-visit rules.

Each keeps an interval per page, stretches it after a visit without change and shrinks it after a
change, and visits what is due. Where the budget is short the page that is overdue longest comes
first; where nothing is due the slot stays empty, unless the schedule may visit early.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import TOKENS_DEPTH
from services.replay.trace import CHANGE
from shared.policy.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Heap = list[Any]
"""Of (key, page)."""

FIXED, NUTCH, STORMCRAWLER, SOFTWARE_HERITAGE = 0, 1, 2, 3


class Schedule(NamedTuple):
    """Parameters of a schedule; days where they are times."""

    kind: int
    interval_days: float
    """Of a page at first."""
    shortest_days: float
    longest_days: float
    increase: float
    """Unchanged: the interval grows by this share."""
    decrease: float
    """Changed: it shrinks by this share."""
    sync_delta: float
    """Nutch: the next visit is moved back by this share of the time since the last change."""
    early: bool
    """Whether slots in which nothing is due are used for what is due next."""
    by_importance: bool
    """Whether, of the pages that are due, the most important comes first (Nutch's generator)."""
    lag_share: float
    """Software Heritage: share of slots for pages known to have changed, by lag."""


@compiled
def queue_days(offset: int) -> float:
    """Software Heritage: days between visits at a position offset."""
    if offset < 2:
        return 1.0
    if offset < 5:
        return 2.0
    return 4.0 * 2.0 ** (offset - 4)


@compiled
def next_visit(
    schedule: Schedule,
    interval: float,
    offset: int,
    modified: float,
    now: float,
    changed: bool,
    rng: np.random.Generator,
) -> tuple[float, int, float]:
    """(interval, offset, day of the next visit) after a visit at `now`.

    `modified` is the day at which the last change was seen, now if `changed`.
    """
    following = now
    if schedule.kind == NUTCH:
        interval *= 1.0 - schedule.decrease if changed else 1.0 + schedule.increase
        if schedule.sync_delta > 0.0:
            delta = now - modified
            interval = max(interval, delta)
            following -= delta * schedule.sync_delta
        interval = min(max(interval, schedule.shortest_days), schedule.longest_days)
    elif schedule.kind == STORMCRAWLER:
        if changed:
            interval = (1.0 - schedule.decrease) * interval
            interval += schedule.decrease * schedule.shortest_days
        else:
            interval = min(interval * (1.0 + schedule.increase), schedule.longest_days)
    elif schedule.kind == SOFTWARE_HERITAGE:
        offset = max(offset - 2, 0) if changed else offset + 1
        spread = 0.9 + 0.2 * rng.random()
        interval = min(queue_days(offset) * spread, schedule.longest_days)
    return interval, offset, following + interval


class _Pages(NamedTuple):
    """Columns of the loop."""

    importance: Floats
    host: Integers
    born: Floats
    interval: Floats
    offset: Integers
    modified: Floats
    visited: Floats
    due: Floats
    told: Floats
    """Day of the last signal since the visit before; −1: none."""
    changed: NDArray[np.bool_]
    limit: Floats
    """Of each host, a day."""
    tokens: Floats
    filled: Floats


@compiled
def _heap(keys: Floats) -> Heap:
    """Every row with its key, the least first.

    Apart, because where numba meets a comprehension it drops writes through a named tuple's field.
    """
    heap = [(keys[page], page) for page in range(keys.size)]
    heapq.heapify(heap)
    return heap


@compiled
def _free(pages: _Pages, host: Any, now: float) -> float:
    if pages.limit[host] == np.inf:
        return np.inf
    saved = pages.tokens[host] + (now - pages.filled[host]) * pages.limit[host]
    return float(min(saved, TOKENS_DEPTH))


@compiled
def _most_lagging(pages: _Pages, lagging: Heap, now: float) -> Any:
    """Software Heritage: of the pages told of, that whose copy lags most; −1: there is none."""
    while lagging:
        lag, page = heapq.heappop(lagging)
        current = pages.told[page] > 0.0 and lag == pages.visited[page] - pages.told[page]
        if current and _free(pages, pages.host[page], now) >= 1.0:
            return page
    return -1


@compiled
def _next_due(
    schedule: Schedule,
    pages: _Pages,
    waiting: Heap,
    ready: Heap,
    now: float,
) -> Any:
    """The page that is due, or that may be visited early; −1: none."""
    if schedule.by_importance:
        while waiting and waiting[0][0] <= now:
            page = heapq.heappop(waiting)[1]
            heapq.heappush(ready, (-pages.importance[page], page))
    for _ in range(len(waiting) + len(ready)):
        if ready:
            page = heapq.heappop(ready)[1]
        else:
            due = waiting[0][0]
            if not (due <= now or schedule.early):
                return -1
            page = heapq.heappop(waiting)[1]
            if due != pages.due[page]:
                continue
        if pages.born[page] > now:
            heapq.heappush(waiting, (pages.due[page], page))
            return -1
        free = _free(pages, pages.host[page], now)
        if free >= 1.0:
            return page
        # Not to hold up the others, a page of a busy host waits until the host is free.
        pages.due[page] = now + (1.0 - free) / pages.limit[pages.host[page]] + 1e-9
        heapq.heappush(waiting, (pages.due[page], page))
    return -1


@compiled
def _take_events(
    pages: _Pages,
    lagging: Heap,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event: int,
    now: float,
) -> int:
    """Everything that happened until now; returns the next event."""
    while event < event_days.size and event_days[event] <= now:
        page, day = event_pages[event], event_days[event]
        if event_kinds[event] == CHANGE:
            pages.changed[page] = pages.changed[page] or day > pages.born[page]
        elif day > pages.visited[page]:
            pages.told[page] = day
            heapq.heappush(lagging, (pages.visited[page] - day, page))
        event += 1
    return event


@compiled
def _visit(
    schedule: Schedule,
    pages: _Pages,
    page: Any,
    now: float,
    queue_day: float,
    rng: np.random.Generator,
) -> float:
    """Visit a page; returns when it is due again."""
    host = pages.host[page]
    if pages.limit[host] < np.inf:
        pages.tokens[host] = _free(pages, host, now) - 1.0
        pages.filled[host] = now
    changed = pages.changed[page]
    if changed:
        pages.modified[page] = now
    interval, offset, due = next_visit(
        schedule,
        pages.interval[page],
        pages.offset[page],
        pages.modified[page],
        queue_day if schedule.kind == SOFTWARE_HERITAGE else now,
        changed,
        rng,
    )
    pages.interval[page] = interval
    pages.offset[page] = offset
    pages.due[page] = due
    pages.visited[page] = now
    pages.told[page] = -1.0
    pages.changed[page] = False
    return due


@compiled
def run_schedule(
    schedule: Schedule,
    rng: np.random.Generator,
    importance: Floats,
    host: Integers,
    born: Floats,
    held: NDArray[np.bool_],
    limit: Floats,
    slot_days: Floats,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    crawled: Integers,
) -> None:
    """Fill `crawled` with the page of each slot, −1 where nothing is due."""
    count = importance.size
    first_due = born.copy()
    for page in range(count):
        if held[page]:
            first_due[page] += rng.random() * schedule.interval_days
    pages = _Pages(
        importance,
        host,
        born,
        np.full(count, schedule.interval_days),
        np.full(count, 4),
        born.copy(),
        born.copy(),
        first_due,
        np.full(count, -1.0),
        np.zeros(count, np.bool_),
        limit,
        np.full(limit.size, TOKENS_DEPTH),
        np.zeros(limit.size),
    )
    waiting = _heap(first_due)
    ready, lagging = _heap(first_due[:0]), _heap(first_due[:0])
    # Software Heritage's queue has a time of its own: how far its visits have come.
    queue_day, credit, event = 0.0, 0.0, 0
    for slot in range(slot_days.size):
        now = slot_days[slot]
        event = _take_events(pages, lagging, event_days, event_pages, event_kinds, event, now)
        credit = min(credit + schedule.lag_share, 2.0)
        page = -1
        if credit >= 1.0:
            page = _most_lagging(pages, lagging, now)
        if page >= 0:
            credit -= 1.0
        else:
            page = _next_due(schedule, pages, waiting, ready, now)
            if page >= 0:
                queue_day = max(queue_day, pages.due[page])
        crawled[slot] = page
        if page >= 0:
            heapq.heappush(waiting, (_visit(schedule, pages, page, now, queue_day, rng), page))
