"""What the listed pages are worth now, and the heap from which slots take them."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import LISTED, Board, add_urgent, time_due
from services.scheduler.picking.board_rows import LEFT, wide
from services.scheduler.picking.heap import push
from services.scheduler.picking.pens import add_to_pen, shrink_pen
from services.scheduler.picking.priority import HIGHEST_VALUE, LEAST_NEW, priority_of
from services.scheduler.picking.wheel import put_off
from shared.policy.compiled import compiled
from shared.store.prefetch import AHEAD, prefetch

_AWAKE: Final = 0.2
"""Of the way from the guard to where pages are looked at: those that have come so near to it are
looked at all the same, as where that is changes. The others are looked at again when they have come
half as near."""

_LONGEST: Final = 10.0
"""Wall seconds for which a page is not looked at, at most."""


@compiled
def weigh_listed(board: Board, now: float, skip_below: float) -> None:
    """Find the priorities of the listed pages; those that belong elsewhere go there.

    Pages whose bound is less than `skip_below` are not looked at, unless their host has come to its
    limit: what is listed is what may be picked. At 0 no bounds are found. From `LEAST_NEW` on, only
    those are that were never looked at before: no other can be new.
    """
    pages, attempts, hosts, terms = board.pages, board.attempts, board.hosts, board.terms
    listed, state = board.listed, board.state[0]
    expire = skip_below < LEAST_NEW
    span = max(skip_below - state.guard, 0.0)
    asleep_below, until_worth = skip_below - _AWAKE * span, skip_below - _AWAKE / 2 * span
    kept = 0
    place = -1
    while place + 1 < state.listed:
        place += 1
        if place + 2 * AHEAD < state.listed and _is_looked_at(
            listed[place + 2 * AHEAD], skip_below
        ):
            prefetch(pages, listed[place + 2 * AHEAD].row)
        if place + AHEAD < state.listed and _is_looked_at(listed[place + AHEAD], skip_below):
            prefetch(hosts, pages[listed[place + AHEAD].row].host)
        is_known = listed[place].bound < skip_below
        is_known = is_known and not (expire and listed[place].until < now)
        if is_known and not (expire and hosts[listed[place].host].is_limited):
            if kept < place:
                listed[kept] = listed[place]
            kept += 1
            continue
        row = listed[place].row
        if row == LEFT:
            continue
        page = pages[row]
        if page.bucket != LISTED or page.listing != listed[place].listing:
            continue
        priority = priority_of(page, attempts, now, terms)
        is_usual = 0.0 < priority <= HIGHEST_VALUE and not hosts[page.host].is_limited
        if not is_usual and _send_elsewhere(board, row, priority, now):
            continue
        # Places up to this one have been read; pages that leave a pen are added at the end.
        entry = listed[kept]
        if kept < place:
            listed[kept] = listed[place]
        entry.priority = priority
        entry.bound = np.inf
        if 0.0 < priority < asleep_below:
            entry.until = now + _time_below(page, priority, until_worth, now, state.reach)
            entry.bound = priority_of(page, attempts, entry.until, terms)
        kept += 1
    state.listed = kept


@compiled
def _time_below(page: Any, priority: float, level: float, now: float, reach: float) -> float:
    """Seconds for which a page is worth less than a level, about: its value grows with the square
    of the time since its crawl at most, unless something happens to it."""
    passed = now - page.last_crawled_at
    return float(min(passed * (math.sqrt(level / priority) - 1.0), _LONGEST * reach))


@compiled
def _is_looked_at(entry: Any, skip_below: float) -> bool:
    """Whether a page is to be weighed, as far as its entry tells."""
    return bool(entry.row != LEFT and not entry.bound < skip_below)


@compiled
def _send_elsewhere(board: Board, row: int, priority: float, now: float) -> bool:
    """Put a listed page where it belongs; whether that is not the list."""
    number = wide(board.pages[row].host)
    if not priority > 0.0:
        return put_off(board.wheel, board.pages, row, time_due(board, row))
    if board.hosts[number].is_limited:
        add_to_pen(board, row, priority, now)
        shrink_pen(board, number, now)
    else:
        add_urgent(board, row, priority)
    return True


@compiled
def queue_listed(
    board: Board, least: float, slots: int
) -> tuple[NDArray[np.float64], NDArray[np.int32], int]:
    """A heap of the places of the listed pages, the most urgent first; keys, places, size.

    There is room for an offer of each host and line, for one more a slot, or a host, that came to
    count no more, and for the urgent pages, should they be urgent no more.
    """
    count = board.state[0].listed if least < LEAST_NEW else 0
    offers = 2 * (board.hosts.size + board.lines.size) + slots
    keys = np.empty(count + board.state[0].urgent + offers + 1)
    items = np.empty(keys.size, np.int32)
    size = 0
    listed = board.listed
    for place in range(count):
        priority = listed[place].priority
        if priority > 0.0 and priority >= least:
            size = push(keys, items, size, priority, place)
    return keys, items, size
