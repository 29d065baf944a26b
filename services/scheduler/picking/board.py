"""Where the calendar has its pages: the arrays that its kernels share, and moves between them.

A page is in one place at a time, and its `bucket` says which:

- in the *calendar*, while its priority is below the guard;
- *listed*: its priority, or a bound of it, is looked at each time that slots are filled;
- *urgent*: in a heap, because it is of an upper tier, and so its priority does not change;
- *penned*: ripe, but of a host that is at its limit (see `pens`);
- asleep: only an event can make it due.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board_rows import ENTRY, STATE, UPPER_TIERS, wide
from services.scheduler.picking.heap import push
from services.scheduler.picking.line_heaps import IN_LINE, raise_bound
from services.scheduler.picking.priority import Terms, due_at, priority_of, queue_of
from services.scheduler.picking.wheel import (
    Wheel,
    has_room,
    is_put_off,
    make_wheel,
    put_off,
    restart,
)
from services.scheduler.state.rows import ASLEEP, UNSET, Rows
from shared.policy.compiled import compiled
from shared.store.prefetch import AHEAD, prefetch

LISTED: Final = 0xFFFE
URGENT: Final = 0xFFFD
PENNED: Final = 0xFFFC

NO_ITEM: Final = 0


class Board(NamedTuple):
    """Arrays, so that kernels can share it; rows may be replaced when they grow."""

    pages: Rows
    records: Rows
    attempts: Rows
    hosts: Rows
    groups: Rows
    lines: Rows
    wheel: Wheel
    listed: Rows
    """Of `ENTRY`."""
    urgent: NDArray[np.int32]
    """Heap of urgent pages, the most urgent first; entries of pages that have left stay. Where
    tiers take turns: one of each tier, in a third of the array."""
    urgent_keys: NDArray[np.float64]
    parked: NDArray[np.int32]
    """Heap of hosts that wait for a token, the first to get one first; -2 - a line: its groups.
    And of hosts whose bounds expire."""
    parked_keys: NDArray[np.float64]
    """Minus the times at which they get it, or do so."""
    pen_rows: NDArray[np.int32]
    """By item of a pen: the page."""
    pen_priorities: NDArray[np.float64]
    """Of these pages, when they were last looked at; of hosts in line: when bounds expire."""
    pen_next: NDArray[np.int32]
    """By item: another one of the same pen; 0: the last one."""
    state: NDArray[Any]
    """One `STATE`."""
    terms: Terms


def make_board(
    expected: int,
    timeout: float,
    first_retry: float,
    reach: float,
    terms: Terms,
    shares: Sequence[float] = (),
) -> Board:
    """A board without pages; `space.attached` gives it rows."""
    none = np.empty(0, np.int32)
    state = np.zeros(1, STATE)
    state["next_item"], state["sweeps_first"] = 1, -1
    state["timeout"], state["first_retry"], state["reach"] = timeout, first_retry, reach
    if shares:
        state["shares"] = [*shares, max(1.0 - sum(shares), 0.0)]
    return Board(
        none,
        none,
        none,
        none,
        none,
        none,
        make_wheel(expected),
        np.empty(0, ENTRY),
        none,
        np.empty(0),
        none,
        np.empty(0),
        none,
        np.empty(0),
        none,
        state,
        terms,
    )


@compiled
def clear_board(board: Board, used: int, host_count: int, now: float, width: float) -> None:
    """All pages are asleep and their s* unset, all hosts without pens."""
    restart(board.wheel, now, width)
    state = board.state[0]
    state.listed = state.dozing = state.urgent = state.parked = state.free_item = 0
    state.next_item, state.sweeps_first = 1, -1
    state.urgent_by_tier[:] = 0
    for row in range(used):
        board.pages[row].bucket = ASLEEP
        board.pages[row].due_staleness = UNSET
    for number in range(host_count):
        host = board.hosts[number]
        host.guard = host.swept_from = host.held_back = 0.0
        host.is_in_sweeps = 0
        host.tier_guards[:] = 0.0
        host.pen = NO_ITEM
        host.penned = 0
        host.is_limited = host.is_parked = 0
        host.weighed_at = host.expires_at = -np.inf


@compiled
def guard_of(board: Board, host: int) -> float:
    """The guard of the pages of a host."""
    guard: float = max(board.state[0].guard, board.hosts[host].guard)
    return guard


@compiled
def _add_entry(listed: Rows, state: Rows, pages: Rows, row: int) -> None:
    page, entry = pages[row], listed[state[0].listed]
    page.bucket = LISTED
    page.listing = np.uint8((page.listing + 1) & 0xFF)
    entry.row = row
    entry.host = page.host
    entry.listing = page.listing
    entry.is_exact = 0
    entry.priority = 0.0
    entry.bound = np.inf
    entry.until = -np.inf
    state[0].listed += 1


@compiled
def list_page(board: Board, row: int) -> None:
    """Look at a page whenever slots are filled; an entry that it had counts no more."""
    _add_entry(board.listed, board.state, board.pages, row)


@compiled
def is_own(pages: Rows, entry: Any) -> bool:
    """Whether an entry of the list, whose page has not left it, is the one that counts for that."""
    page = pages[entry.row]
    return bool(page.bucket == LISTED and page.listing == entry.listing)


@compiled
def time_due(board: Board, row: int) -> float:
    """When a page has to be looked at."""
    page = board.pages[row]
    due: float = due_at(page, board.attempts, guard_of(board, wide(page.host)), board.terms)
    return due


@compiled
def settle(board: Board, row: int) -> None:
    """Put a page that is in no list where it belongs."""
    if not put_off(board.wheel, board.pages, row, time_due(board, row)):
        list_page(board, row)


@compiled
def settle_rows(board: Board, rows: NDArray[np.int32]) -> None:
    """Put pages that are in no list where they belong. A page may come twice."""
    # The arrays by name: passing the whole board for each page costs more than the work.
    pages, attempts, hosts, wheel = board.pages, board.attempts, board.hosts, board.wheel
    _settle(pages, attempts, hosts, wheel, board.listed, board.state, board.terms, rows)


@compiled
def _settle(
    pages: Rows,
    attempts: Rows,
    hosts: Rows,
    wheel: Wheel,
    listed: Rows,
    state: Rows,
    terms: Terms,
    rows: NDArray[np.int32],
) -> None:
    for place in range(rows.size):
        if place + 2 * AHEAD < rows.size:
            prefetch(pages, rows[place + 2 * AHEAD])
        if place + AHEAD < rows.size:
            prefetch(hosts, pages[rows[place + AHEAD]].host)
        row = rows[place]
        page = pages[row]
        if page.bucket == LISTED:
            continue
        guard = max(state[0].guard, hosts[page.host].guard)
        if not put_off(wheel, pages, row, due_at(page, attempts, guard, terms)):
            _add_entry(listed, state, pages, row)


def settle_touched(board: Board, rows: NDArray[np.int32], reweigh: bool) -> bool:
    """Something happened to pages: put them where they belong now.

    Penned ones stay: they are looked at when their hosts are called. So do urgent ones, unless they
    are to be weighed again. What was known of listed ones is forgotten.

    Returns:
        whether there was room for so many moves; if not, nothing was done.
    """
    # The arrays by name: there are few rows at a time, and to pass the whole board costs more.
    return bool(
        _settle_touched(
            board.pages,
            board.attempts,
            board.hosts,
            board.lines,
            board.wheel.chains,
            board.wheel.chunks,
            board.wheel.dial,
            board.listed,
            board.state,
            board.terms,
            rows,
            reweigh,
        )
    )


@compiled
def _settle_touched(
    pages: Rows,
    attempts: Rows,
    hosts: Rows,
    lines: Rows,
    chains: Rows,
    chunks: NDArray[np.int32],
    dial: Rows,
    listed: Rows,
    state: Rows,
    terms: Terms,
    rows: NDArray[np.int32],
    reweigh: bool,
) -> bool:
    wheel = Wheel(chains, chunks, dial)
    if state[0].listed + rows.size > listed.size or not has_room(wheel, rows.size):
        return False
    moved = np.empty(rows.size, np.int32)
    count = 0
    for row in rows:
        bucket = pages[row].bucket
        if is_put_off(bucket):
            moved[count] = row
            count += 1
        elif bucket == LISTED or (reweigh and bucket == URGENT):
            _add_entry(listed, state, pages, row)
        elif bucket == PENNED:
            number = pages[row].host
            if hosts[number].is_parked == IN_LINE:
                later = priority_of(pages[row], attempts, hosts[number].expires_at, terms)
                raise_bound(hosts, lines, number, later)
    _settle(pages, attempts, hosts, wheel, listed, state, terms, moved[:count])
    return True


@compiled
def _waits_for_host(hosts: Rows, number: int, guard: float) -> bool:
    """Whether pages outside the pen of a host are where they belong although the global guard has
    changed: that of the host is above, and was when they were placed."""
    host = hosts[number]
    return bool(host.is_limited and host.guard > guard and not host.swept_from > 0.0)


@compiled
def settle_all(board: Board, first: int, end: int) -> None:
    """Place anew all pages of some rows that are not listed, as the guard has changed."""
    settle_rows(board, rows_to_settle(board, first, end))


@compiled
def rows_to_settle(board: Board, first: int, end: int) -> NDArray[np.int32]:
    """Those of some rows that are to be placed anew, as the guard has changed: when they are due is
    not known any more. Nothing is written but to these rows."""
    pages, hosts, state = board.pages, board.hosts, board.state[0]
    highest = math.inf if board.terms.in_turns else max(state.guard, state.certain_from)
    rows = np.empty(end - first, np.int32)
    count = 0
    for row in range(first, end):
        if _waits_for_host(hosts, pages[row].host, highest):
            continue
        pages[row].due_staleness = UNSET
        if is_put_off(pages[row].bucket):
            rows[count] = row
            count += 1
    return rows[:count]


@compiled
def find_due(board: Board, rows: NDArray[np.int32]) -> None:
    """Find when pages that are to be placed are due, so that this takes less. Nothing is written
    but to these rows: several threads may do so, of rows of their own, while others are placed."""
    pages, attempts, hosts, terms = board.pages, board.attempts, board.hosts, board.terms
    least = board.state[0].guard
    for place in range(rows.size):
        if place + AHEAD < rows.size:
            prefetch(hosts, pages[rows[place + AHEAD]].host)
        page = pages[rows[place]]
        due_at(page, attempts, max(least, hosts[page.host].guard), terms)


@compiled
def add_urgent(board: Board, row: int, priority: float) -> None:
    """Put a page of an upper tier into the heap."""
    board.pages[row].bucket = URGENT
    state, keys, items = board.state[0], board.urgent_keys, board.urgent
    if board.terms.in_turns:
        tier = queue_of(priority, True) - 1
        size = items.size // UPPER_TIERS
        first, end = tier * size, (tier + 1) * size
        count = state.urgent_by_tier[tier]
        state.urgent_by_tier[tier] = push(keys[first:end], items[first:end], count, priority, row)
        state.urgent += 1
    else:
        state.urgent = push(keys, items, state.urgent, priority, row)


@compiled
def park(board: Board, number: int, ready: float) -> None:
    """Let a host wait until a time; an earlier entry of it counts no more."""
    if ready == math.inf:
        board.hosts[number].ready_at = math.inf
        board.hosts[number].is_parked = 1
        return
    board.hosts[number].ready_at = ready
    board.hosts[number].is_parked = 1
    state = board.state[0]
    state.parked = push(board.parked_keys, board.parked, state.parked, -ready, number)
