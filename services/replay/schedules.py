"""The schedules that people run today, from their documentation, as compiled next-visit rules.

Each keeps an interval per page, stretches it after a visit without change and shrinks it after a
change, and visits what is due. Where the budget is short the page that is overdue longest comes
first; where nothing is due the slot stays empty, unless the schedule may visit early. Any of them
may be told of signals, and of importance.
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
"""Of (key, second key, page), the least first."""

FIXED, NUTCH, STORMCRAWLER, SOFTWARE_HERITAGE = 0, 1, 2, 3


class Schedule(NamedTuple):
    """Parameters of a schedule; days where they are times."""

    kind: int
    interval_days: float
    """Of a page at first."""
    shortest_days: float
    longest_days: float
    increase: float = 0.0
    """Unchanged: the interval grows by this share."""
    decrease: float = 0.0
    """Changed: it shrinks by this share."""
    sync_delta: float = 0.0
    """Nutch: the next visit is moved back by this share of the time since the last change."""
    early: bool = False
    """Whether slots in which nothing is due are used for what is due next."""
    by_importance: bool = False
    """Whether, of the pages that are due, the most important comes first (Nutch's generator)."""
    told_share: float = 0.0
    """Share of slots for pages that sent a signal since their visit; 1: they come first."""
    told_by_importance: bool = False
    """Whether the most important of those comes first, and of equal ones that visited longest ago;
    else that whose copy lags most behind its signal (Software Heritage)."""
    poll_share: float = 0.0
    """Share of the budget for polls, where signals are known by these alone (`fixed_polls`)."""


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
    """Day that the last signal since the last visit is about; −1: none."""
    changed: NDArray[np.bool_]
    limit: Floats
    """Of each host, a day."""
    tokens: Floats
    filled: Floats


class _Heaps(NamedTuple):
    """Who waits for what."""

    waiting: Heap
    """By the day on which a page is due."""
    ready: Heap
    """Pages that are due, by importance and then by that day."""
    told: Heap
    """Pages that sent a signal, by `_told_key`."""
    held_up: Heap
    """Those of them whose hosts are busy, by the day on which a host is free."""


@compiled
def _heap() -> Heap:
    """Apart, because where numba meets a comprehension it drops writes through a named tuple's
    field."""
    heap = [(0.0, 0.0, 0)]
    heap.pop()
    return heap


@compiled
def _free_from(pages: _Pages, host: Any, now: float) -> float:
    """The day from which on a host may be visited."""
    limit = pages.limit[host]
    if limit == np.inf:
        return now
    saved = min(pages.tokens[host] + (now - pages.filled[host]) * limit, TOKENS_DEPTH)
    if saved >= 1.0:
        return now
    return float(now + (1.0 - saved) / limit + 1e-9) if limit > 0.0 else np.inf


@compiled
def _told_key(schedule: Schedule, pages: _Pages, page: Any) -> tuple[float, float, int]:
    """Where a page that sent a signal stands among those that did."""
    if schedule.told_by_importance:
        return -pages.importance[page], pages.visited[page], page
    return pages.visited[page] - pages.told[page], 0.0, page


@compiled
def _next_told(schedule: Schedule, pages: _Pages, heaps: _Heaps, now: float) -> Any:
    """The first of the pages that sent a signal and whose hosts are free; −1: there is none.

    A page of a busy host waits until the host is free.
    """
    told, held_up = heaps.told, heaps.held_up
    while held_up and held_up[0][0] <= now:
        page = heapq.heappop(held_up)[2]
        if pages.told[page] >= 0.0:
            heapq.heappush(told, _told_key(schedule, pages, page))
    while told:
        entry = heapq.heappop(told)
        page = entry[2]
        if pages.told[page] < 0.0 or entry != _told_key(schedule, pages, page):
            continue
        free_from = _free_from(pages, pages.host[page], now)
        if free_from <= now:
            return page
        heapq.heappush(held_up, (free_from, 0.0, page))
    return -1


@compiled
def _next_due(schedule: Schedule, pages: _Pages, heaps: _Heaps, now: float) -> Any:
    """The page that is due, or that may be visited early; −1: none.

    A page of a busy host waits until the host is free.
    """
    waiting, ready = heaps.waiting, heaps.ready
    if schedule.by_importance:
        while waiting and waiting[0][0] <= now:
            due, _, page = heapq.heappop(waiting)
            heapq.heappush(ready, (-pages.importance[page], due, page))
    for _ in range(len(waiting) + len(ready)):
        if ready:
            _, due, page = heapq.heappop(ready)
        else:
            due, _, page = waiting[0]
            if not (due <= now or schedule.early):
                return -1
            heapq.heappop(waiting)
        if due != pages.due[page]:
            continue
        free_from = _free_from(pages, pages.host[page], now)
        if free_from <= now:
            return page
        pages.due[page] = free_from
        heapq.heappush(waiting, (free_from, 0.0, page))
    return -1


@compiled
def _take_events(
    schedule: Schedule,
    pages: _Pages,
    heaps: _Heaps,
    event_days: Floats,
    event_pages: Integers,
    event_kinds: NDArray[np.int8],
    event_about: Floats,
    event: int,
    now: float,
) -> int:
    """Everything that happened until now; returns the next event."""
    while event < event_days.size and event_days[event] <= now:
        page, about = event_pages[event], event_about[event]
        if event_kinds[event] == CHANGE:
            pages.changed[page] = pages.changed[page] or about > pages.born[page]
        elif about > pages.visited[page]:
            pages.told[page] = about
            heapq.heappush(heaps.told, _told_key(schedule, pages, page))
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
        saved = pages.tokens[host] + (now - pages.filled[host]) * pages.limit[host]
        pages.tokens[host] = min(saved, TOKENS_DEPTH) - 1.0
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
    event_about: Floats,
    crawled: Integers,
) -> None:
    """Fill `crawled` with the page of each slot, −1 where nothing is due.

    `event_about` is the day that an event's news is about: where a signal is read late but dated,
    one of before the last visit is no news.
    """
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
    heaps = _Heaps(_heap(), _heap(), _heap(), _heap())
    births = np.argsort(born)
    # Software Heritage's queue has a time of its own: how far its visits have come.
    queue_day, credit, event, known = 0.0, 0.0, 0, 0
    for slot in range(slot_days.size):
        now = slot_days[slot]
        while known < count and born[births[known]] <= now:
            page = births[known]
            heapq.heappush(heaps.waiting, (first_due[page], 0.0, page))
            known += 1
        event = _take_events(
            schedule,
            pages,
            heaps,
            event_days,
            event_pages,
            event_kinds,
            event_about,
            event,
            now,
        )
        credit = min(credit + schedule.told_share, 2.0)
        page = -1
        if credit >= 1.0:
            page = _next_told(schedule, pages, heaps, now)
        if page >= 0:
            credit -= 1.0
        else:
            page = _next_due(schedule, pages, heaps, now)
            if page >= 0:
                queue_day = max(queue_day, pages.due[page])
        crawled[slot] = page
        if page >= 0:
            due = _visit(schedule, pages, page, now, queue_day, rng)
            heapq.heappush(heaps.waiting, (due, 0.0, page))
