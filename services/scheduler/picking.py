"""Filling slots with the most urgent pages.

All slots of one call are filled by the priorities that pages have at the first of them: each gets
the most urgent page whose host has a token at the slot's own time. What is chosen is what a look
at every page would choose, and known to be so while it is not below the guard of those that were
not looked at.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.attempts import open_attempt
from services.scheduler.board import (
    CERTAIN_FROM,
    GUARD,
    LISTS,
    PARKED,
    TIMEOUT,
    URGENT,
    URGENTS,
    Board,
    add_urgent,
    list_page,
    park,
    pop,
    push,
    settle,
    time_due,
)
from services.scheduler.calendar import put_off
from services.scheduler.hosts import note_value, take_token, usable_from
from services.scheduler.pages import Rows
from services.scheduler.pens import (
    ABOVE,
    add_to_pen,
    best_of_pen,
    dissolve_pen,
    fill_pen,
    release_host,
    shrink_pen,
    take_best,
    weigh_pen,
)
from services.scheduler.priority import (
    BY_VALUE,
    HIGHEST_VALUE,
    crawl_value_of,
    priority_of,
    tier_of,
)
from shared.policy.compiled import compiled

PICK: Final = np.dtype(
    [
        ("row", np.int64),  # -1: nothing to crawl
        ("time", np.float64),
        ("priority", np.float64),
        ("value", np.float64),
        ("tier", np.int64),
    ],
    align=True,
)

_NOBODY: Final = -1

_LEFT: Final = -1
"""In `listed`: the page is somewhere else now."""

_LARGE_HOST: Final = 4096
"""Pages of a host that are not all placed anew in the middle of a tick without need."""


@compiled
def commit(board: Board, pick: Any, row: int, priority: float, now: float) -> None:
    """Send a page on its way: in flight, its host's token taken, the pick written down.

    `pick.time` is that of the priorities, and becomes `now`, the slot's.
    """
    page = board.pages[row]
    host = board.hosts[page.host]
    tier = tier_of(page, board.attempts, pick.time)
    pick.row = row
    pick.priority = priority
    pick.tier = tier
    pick.value = priority
    take_token(host, now)
    if tier == BY_VALUE:
        note_value(host, priority)
    else:
        pick.value = crawl_value_of(page, now, board.uniform)
    pick.time = now
    attempt = open_attempt(board.attempts, page)
    attempt.deadline = now + board.levels[TIMEOUT]
    attempt.requested_us = int(np.floor(now * 1e6 + 0.5))
    settle(board, row)


@compiled
def _weigh_listed(board: Board, now: float) -> None:
    """Find the priorities of the listed pages; those that belong elsewhere go there."""
    kept = 0
    place = -1
    while place + 1 < board.sizes[LISTS]:
        place += 1
        row = board.listed[place]
        page = board.pages[row]
        priority = priority_of(page, board.attempts, now, board.uniform)
        if not priority > 0.0:
            if put_off(board.wheel, board.pages, row, time_due(board, row)):
                continue
        elif board.hosts[page.host].is_limited:
            add_to_pen(board, row, priority)
            shrink_pen(board, page.host, now)
            continue
        elif priority > HIGHEST_VALUE:
            add_urgent(board, row, priority)
            continue
        # Places up to this one have been read; pages that leave a pen are added at the end.
        board.listed[kept] = row
        board.priorities[kept] = priority
        kept += 1
    board.sizes[LISTS] = kept


@compiled
def _limit_host(board: Board, number: int, row: int, priority: float, now: float) -> None:
    """A page cannot be crawled because its host has no token: put it into the host's pen."""
    host = board.hosts[number]
    if not host.is_limited:
        host.is_limited = 1
        host.weighed_at = now
    add_to_pen(board, row, priority)
    shrink_pen(board, number, now)
    if not host.is_parked:
        host.held_back = priority
        park(board, number, usable_from(host))


@compiled
def _release_hosts(
    board: Board,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    weighed: float,
    now: float,
) -> int:
    """Let hosts that have a token again take part, with the best of their pens; the new size."""
    while board.sizes[PARKED] > 0 and -board.parked_keys[0] <= now:
        ready, number = -board.parked_keys[0], int(board.parked[0])
        board.sizes[PARKED] = pop(board.parked_keys, board.parked, board.sizes[PARKED])
        host = board.hosts[number]
        if not host.is_parked or host.ready_at != ready:
            continue
        usable = usable_from(host)
        if usable > now:
            park(board, number, usable)
            continue
        host.is_parked = 0
        size = _offer(board, keys, items, size, number, weighed)
    return size


@compiled
def _offer(
    board: Board,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    number: int,
    weighed: float,
) -> int:
    """Let the best of a host's pen take part; the new size of the heap."""
    host = board.hosts[number]
    weigh_pen(board, number, weighed)
    best = best_of_pen(board, number)
    if best * ABOVE < host.guard and host.guard > board.levels[GUARD]:
        fill_pen(board, number, weighed)
        best = best_of_pen(board, number)
    if best > 0.0:
        return push(keys, items, size, best, -2 - number)
    dissolve_pen(board, number)
    return size


@compiled
def _next_urgent(board: Board, now: float) -> float:
    """Priority of the most urgent page of the heap, which is then on top; 0 without any."""
    priority = 0.0
    while board.sizes[URGENTS] > 0:
        row = board.urgent[0]
        page = board.pages[row]
        if page.bucket == URGENT:
            priority = priority_of(page, board.attempts, now, board.uniform)
            if priority == board.urgent_keys[0]:
                return priority
        board.sizes[URGENTS] = pop(board.urgent_keys, board.urgent, board.sizes[URGENTS])
        if page.bucket == URGENT:
            if priority > HIGHEST_VALUE:
                add_urgent(board, row, priority)
            else:
                list_page(board, row)
    return 0.0


@compiled
def _take_next(
    board: Board,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    weighed: float,
    now: float,
    floor: float,
) -> tuple[int, float, int, int]:
    """Take the most urgent page that can be crawled now, if it is worth `floor`.

    Returns:
        its row or -1; its priority, or that of the best there is; the place in `listed` that it
        had, -2 - its host if it was penned, else `_NOBODY`; the new size of the heap.
    """
    while True:
        urgent = _next_urgent(board, weighed)
        top = keys[0] if size > 0 else 0.0
        best = max(urgent, top)
        if not best > 0.0 or best < floor:
            return -1, best, _NOBODY, size
        if urgent >= top:
            row, item = int(board.urgent[0]), _NOBODY
            board.sizes[URGENTS] = pop(board.urgent_keys, board.urgent, board.sizes[URGENTS])
        else:
            item = int(items[0])
            size = pop(keys, items, size)
            if item < _NOBODY:
                return take_best(board, -2 - item), best, item, size
            row = int(board.listed[item])
            board.listed[item] = _LEFT
        number = int(board.pages[row].host)
        if usable_from(board.hosts[number]) <= now:
            return row, best, item, size
        _limit_host(board, number, row, best, weighed)


@compiled
def fill_slots(
    board: Board, slots: NDArray[np.float64], least: float, must_be_certain: bool, picks: Rows
) -> int:
    """Pick a page for each slot.

    Args:
        board: the pages; picked ones go in flight, their hosts' tokens are taken. There must be
            room for an attempt a slot.
        slots: times, rising, clock seconds; the calendar has come to the first.
        least: priority below which a slot is rather left empty.
        must_be_certain: whether to stop before a pick that a look at all pages might not make.
        picks: one `PICK` a slot, to be written.

    Returns:
        how many slots were settled.
    """
    weighed = slots[0]
    _weigh_listed(board, weighed)
    count = board.sizes[LISTS]
    keys = np.empty(count + board.hosts.size + 1)
    items = np.empty(count + board.hosts.size + 1, np.int32)
    size = 0
    for place in range(count):
        if board.priorities[place] > 0.0 and board.priorities[place] >= least:
            size = push(keys, items, size, board.priorities[place], place)
    certain_from = board.levels[CERTAIN_FROM] if must_be_certain else 0.0
    settled = 0
    for slot in range(slots.size):
        now = slots[slot]
        size = _release_hosts(board, keys, items, size, weighed, now)
        floor = max(least, certain_from)
        row, priority, item, size = _take_next(board, keys, items, size, weighed, now, floor)
        if row < 0 and max(priority, least) < certain_from:
            break
        picks[slot].row = row
        picks[slot].time = weighed
        settled += 1
        if row < 0:
            picks[slot].time = now
            continue
        commit(board, picks[slot], row, priority, now)
        if item < _NOBODY:
            size = _offer_again(board, keys, items, size, -2 - item, weighed, now)
    _close(board, items, size, count, slots[slots.size - 1])
    return settled


@compiled
def _offer_again(
    board: Board,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    number: int,
    weighed: float,
    now: float,
) -> int:
    """After a crawl of a host with a pen: offer the next page of it, or let it wait."""
    host = board.hosts[number]
    usable = usable_from(host)
    if usable <= now:
        return _offer(board, keys, items, size, number, weighed)
    host.held_back = best_of_pen(board, number)
    park(board, number, usable)
    return size


@compiled
def _close(
    board: Board,
    items: NDArray[np.int32],
    size: int,
    weighed: int,
    now: float,
) -> None:
    """Clean up: hosts that were offered and not wanted, listed pages that have left.

    The first `weighed` of the listed pages have priorities.
    """
    for place in range(size):
        if items[place] < _NOBODY:
            number = -2 - int(items[place])
            host = board.hosts[number]
            if host.guard > board.levels[GUARD] and host.pages > _LARGE_HOST:
                park(board, number, now)
            else:
                release_host(board, number)
    kept = 0
    for place in range(board.sizes[LISTS]):
        if board.listed[place] != _LEFT:
            board.listed[kept] = board.listed[place]
            board.priorities[kept] = board.priorities[place] if place < weighed else 0.0
            kept += 1
    board.sizes[LISTS] = kept
