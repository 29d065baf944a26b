"""What the listed pages are worth now, and the heap from which slots take them."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, add_urgent, is_own, list_page, time_due
from services.scheduler.picking.board_rows import LEFT, wide
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

_LONGEST: Final = 10.0
"""Wall seconds for which a page is not looked at, at most."""

_BOUNDED: Final = 0.5
"""Wall seconds for which the bound of a page that may be picked counts: its value hardly grows
within them, so few bounds have to be looked behind before a slot is filled."""

_TURNS: Final = 16
"""Looks in which the hosts of all pages that are not looked at are asked whether they are at their
limits: they lie far apart in memory, and all of them at once would cost as much as all else."""

_DOZE: Final = 0.8
"""Wall seconds for which pages that will not be looked at so soon doze: they come first in the
list, and nobody asks whether they are to be."""

_DOZING: Final = 0.3
"""Of the same: those that will be so much below doze, as where that is changes."""


@compiled
def weigh_listed(board: Board, now: float, skip_below: float, by_bounds: bool) -> None:
    """Find the priorities of the listed pages, or bounds of them; those that belong elsewhere go
    there.

    Pages whose bound is less than `skip_below` are not looked at, unless their host is found at its
    limit (`_TURNS`): what is listed is what may be picked. At 0 no bounds are found. From
    `LEAST_NEW` on, only those are that were never looked at before: no other can be new.

    Nobody asks of pages that doze (`_DOZE`), until that time has passed, or more are looked at.

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
    asked_from, asked_to = _let_wake(state, now, skip_below, dozes_below)
    kept, place = state.dozing, state.dozing - 1
    while place + 1 < state.listed:
        place += 1
        if place + 2 * AHEAD < state.listed and _is_looked_at(
            listed[place + 2 * AHEAD], now, skip_below, by_bounds
        ):
            prefetch(pages, listed[place + 2 * AHEAD].row)
        if place + AHEAD < state.listed and _is_looked_at(
            listed[place + AHEAD], now, skip_below, by_bounds
        ):
            prefetch(hosts, pages[listed[place + AHEAD].row].host)
        row = listed[place].row
        if row == LEFT:
            continue
        is_known = by_bounds or listed[place].bound < skip_below
        is_known = is_known and not (expire and listed[place].until < now)
        is_asked = expire and asked_from <= place < asked_to
        if is_known and not (is_asked and hosts[listed[place].host].is_limited):
            if kept < place:
                listed[kept] = listed[place]
            listed[kept].is_exact = 0
            _let_doze(listed, state, kept, expire)
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
        entry.priority = priority
        entry.is_exact = 1
        entry.bound, entry.until = np.inf, -np.inf
        if 0.0 < priority < asleep_below:
            entry.until = now + _time_below(page, priority, until_worth, now, state.reach)
        elif by_bounds:
            entry.until = now + _BOUNDED * state.reach
        if entry.until > now:
            entry.bound = priority_of(page, attempts, entry.until, terms)
            _let_doze(listed, state, kept, expire)
        kept += 1
    state.listed = kept


@compiled
def _let_wake(state: Any, now: float, skip_below: float, dozes_below: float) -> tuple[int, int]:
    """Let no page doze any more where these are to be looked at.

    Args:
        state: of the board.
        now: see `weigh_listed`.
        skip_below: see there.
        dozes_below: those may doze from now on that are worth less; 0: none.

    Returns:
        places in the list, from one to before another, whose hosts are asked for their limits: none
        while pages doze, and then those of all the looks of that time.
    """
    if dozes_below > 0.0 and now < state.wakes_at and skip_below >= state.dozes_below:
        if state.dozing > 0:
            state.looks += 1
            return 0, 0
    else:
        state.dozing, state.dozes_below = 0, dozes_below
        state.wakes_at = now + _DOZE * state.reach
    first = state.asked_from if state.asked_from < state.listed else 0
    state.asked_from = first + state.listed * min(state.looks + 1, _TURNS) // _TURNS + 1
    state.looks = 0
    return first, state.asked_from


@compiled
def _let_doze(listed: Rows, state: Any, place: int, expire: bool) -> None:
    """Put the entry at a place at the end of those that doze, if nothing is to be asked of it until
    they wake; `expire`: bounds do, as others than new pages are looked at."""
    entry = listed[place]
    if not entry.bound < state.dozes_below or (expire and entry.until < state.wakes_at):
        return
    if state.dozing < place:
        other = listed[state.dozing]
        entry.row, other.row = other.row, entry.row
        entry.host, other.host = other.host, entry.host
        entry.listing, other.listing = other.listing, entry.listing
        entry.is_exact, other.is_exact = other.is_exact, entry.is_exact
        entry.priority, other.priority = other.priority, entry.priority
        entry.bound, other.bound = other.bound, entry.bound
        entry.until, other.until = other.until, entry.until
    state.dozing += 1


@compiled
def _time_below(page: Any, priority: float, level: float, now: float, reach: float) -> float:
    """Seconds for which a page is worth less than a level, about: its value grows with the square
    of the time since its crawl at most, unless something happens to it."""
    passed = now - page.last_crawled_at
    return float(min(passed * (math.sqrt(level / priority) - 1.0), _LONGEST * reach))


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
