"""What the listed pages are worth now, and the heap from which slots take them."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, add_urgent, is_own, list_page, time_due
from services.scheduler.picking.board_rows import LEFT, wide
from services.scheduler.picking.dozing import let_doze, let_wake, wake_limited
from services.scheduler.picking.heap import push
from services.scheduler.picking.pens import add_to_pen, shrink_pen
from services.scheduler.picking.priority import HIGHEST_VALUE, LEAST_NEW, Terms, priority_of
from services.scheduler.picking.wheel import put_off
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled
from shared.store.prefetch import AHEAD, prefetch

_AWAKE: Final = 0.6
"""Of the way from what is picked to where pages are looked at no more: those that are so little
below are looked at all the same, as where that is changes. The others are looked at again when they
are half as far below."""

_DOZING: Final = 0.3
"""Of the same: those that will be so much below may doze, as where that is changes."""

_LONGEST: Final = 15.0
"""Wall seconds for which a page is not looked at, at most ..."""

_BOUNDED: Final = 0.67
"""... and for which the bound of one that may be picked counts: its value hardly grows within them,
so few bounds have to be looked behind before a slot is filled."""

_SPREAD: Final = 64
"""Half of that for some, by their rows: very many that are looked at at once, as after a load, are
not to be looked at again at once."""


@compiled
def weigh_listed(board: Board, now: float, skip_below: float, by_bounds: bool) -> None:
    """Find the priorities of the listed pages, or bounds of them; those that belong elsewhere go
    there.

    Pages whose bound is less than `skip_below` are not looked at, unless their host is found at its
    limit (`wake_limited`): what is listed is what may be picked. At 0 no bounds are found. From
    `LEAST_NEW` on, only those are that were never looked at before: no other can be new.

    Args:
        board: the pages.
        now: the time whose priorities count, clock seconds.
        skip_below: see above.
        by_bounds: whether bounds suffice of others as well, as long as they hold; who takes such a
            page looks at it (`weigh_entry`).
    """
    pages, attempts, hosts, terms = board.pages, board.attempts, board.hosts, board.terms
    listed, state = board.listed, board.state[0]
    expire, by_bounds = skip_below < LEAST_NEW, by_bounds and 0.0 < skip_below < LEAST_NEW
    span = min(state.looked_span, max(skip_below - state.guard, 0.0))
    asleep_below, until_worth = skip_below - _AWAKE * span, skip_below - _AWAKE / 2 * span
    dozes_below = skip_below - _DOZING * span
    let_wake(state, now, skip_below, dozes_below)
    asked_from, asked_to = wake_limited(board) if expire else (0, 0)
    kept, place = state.dozing, state.dozing - 1
    while place + 1 < state.listed:
        place += 1
        if place + 2 * AHEAD < state.listed:
            _fetch(board, place + AHEAD, now, skip_below, by_bounds, asked_to)
        row = listed[place].row
        if row == LEFT:
            continue
        is_known = by_bounds or listed[place].bound < skip_below
        is_known = is_known and not (expire and listed[place].until < now)
        is_asked = asked_from <= place < asked_to
        if is_known and not (is_asked and hosts[listed[place].host].is_limited):
            if kept < place:
                listed[kept] = listed[place]
            listed[kept].is_exact = 0
            let_doze(listed, state, kept, expire)
            kept += 1
            continue
        page = pages[row]
        if not is_own(pages, listed[place]):
            continue
        priority = priority_of(page, attempts, now, terms)
        is_usual = 0.0 < priority <= HIGHEST_VALUE and not hosts[page.host].is_limited
        if not is_usual and _send_elsewhere(board, row, priority, now):
            continue
        # Places up to this one have been read; pages that leave a pen are added at the end.
        entry = listed[kept]
        if kept < place:
            listed[kept] = listed[place]
        entry.priority, entry.is_exact = priority, 1
        entry.bound, entry.until = np.inf, -np.inf
        wall = state.reach * (0.5 + 0.5 * (row % _SPREAD) / _SPREAD)
        seconds = _BOUNDED * wall if by_bounds else 0.0
        if 0.0 < priority < asleep_below:
            seconds = min(_time_below(page, priority, until_worth, now), _LONGEST * wall)
        if seconds > 0.0:
            entry.until = now + seconds
            entry.bound = priority_of(page, attempts, entry.until, terms)
            let_doze(listed, state, kept, expire)
        kept += 1
    state.listed = kept


@compiled
def _fetch(
    board: Board, place: int, now: float, skip_below: float, by_bounds: bool, asked_to: int
) -> None:
    """Ask for the memory of listed pages that are to be weighed: for the host of the one at a
    place, and for a page further on. `asked_to`: up to there hosts are asked in any case."""
    nearer, further = board.listed[place], board.listed[place + AHEAD]
    if _is_looked_at(further, now, skip_below, by_bounds):
        prefetch(board.pages, further.row)
    if _is_looked_at(nearer, now, skip_below, by_bounds):
        prefetch(board.hosts, board.pages[nearer.row].host)
    elif place < asked_to:
        prefetch(board.hosts, nearer.host)


@compiled
def _time_below(page: Any, priority: float, level: float, now: float) -> float:
    """Seconds for which a page is worth less than a level, about: its value grows with the square
    of the time since its crawl at most, unless something happens to it."""
    passed = now - page.last_crawled_at
    return float(passed * (math.sqrt(level / priority) - 1.0))


@compiled
def _is_looked_at(entry: Any, now: float, skip_below: float, by_bounds: bool) -> bool:
    """Whether a page is to be weighed, as far as its entry tells."""
    if entry.row == LEFT or (by_bounds and entry.until >= now):
        return False
    return not entry.bound < skip_below


@compiled
def weigh_entry(
    pages: Rows, attempts: Rows, hosts: Rows, entry: Any, now: float, terms: Terms
) -> bool:
    """Find the priority of a listed page of which there is but a bound; whether it may be picked,
    as far as its host is not at its limit. If not, it belongs elsewhere (`put_elsewhere`)."""
    page = pages[entry.row]
    if not is_own(pages, entry) or hosts[page.host].is_limited:
        return False
    priority = priority_of(page, attempts, now, terms)
    if not 0.0 < priority <= HIGHEST_VALUE:
        return False
    entry.priority, entry.is_exact = priority, 1
    return True


@compiled
def put_elsewhere(board: Board, place: int, now: float) -> None:
    """A listed page is not to be picked (`weigh_entry`): it leaves its place, for where it belongs,
    if the entry there is its own."""
    entry = board.listed[place]
    row, counts = wide(entry.row), is_own(board.pages, entry)
    entry.row = LEFT
    if counts:
        priority = priority_of(board.pages[row], board.attempts, now, board.terms)
        if not _send_elsewhere(board, row, priority, now):
            list_page(board, row)


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
    """A heap of the places of the listed pages, the most urgent first, by their priorities where
    these are known, else by their bounds; keys, places, size.

    There is room for an offer of each host and line, for one more a slot, or a host, that came to
    count no more, and for the urgent pages, should they be urgent no more.
    """
    count = board.state[0].listed if least < LEAST_NEW else 0
    offers = 2 * (board.hosts.size + board.lines.size) + slots
    keys = np.empty(count + board.state[0].urgent + offers + 1)
    items = np.empty(keys.size, np.int32)
    size = 0
    listed = board.listed
    dozing = board.state[0].dozing if least >= board.state[0].dozes_below else 0
    for place in range(dozing, count):
        priority = listed[place].priority if listed[place].is_exact else listed[place].bound
        if priority > 0.0 and priority >= least:
            size = push(keys, items, size, priority, place)
    return keys, items, size
