"""Where the selection has its pages: the arrays that its kernels share, and moves between them.

A page is in one place at a time, and its `bucket` says which:

- in the *calendar*, while its priority is below the guard;
- *listed*: its priority is looked at each time that slots are filled;
- *urgent*: in a heap, because it is of an upper tier, and so its priority does not change;
- *penned*: ripe, but of a host that is at its limit (see `pens`);
- asleep: only an event can make it due.
"""

import math
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.calendar import (
    COARSE,
    FINE,
    TICKS_IN_COARSE,
    Wheel,
    has_come,
    is_put_off,
    make_wheel,
    next_tick,
    put_off,
    restart,
    skip_empty,
    take_bucket,
    with_room,
)
from services.scheduler.pages import ASLEEP, UNSET, Rows
from services.scheduler.priority import due_at
from shared.policy.compiled import compiled

LISTED: Final = 0xFFFE
URGENT: Final = 0xFFFD
PENNED: Final = 0xFFFC

LISTS, URGENTS, PARKED, FREE_ITEM, NEXT_ITEM = 0, 1, 2, 3, 4
"""Places in `Board.sizes`."""

GUARD, CERTAIN_FROM, TIMEOUT, REACH = 0, 1, 2, 3
"""Places in `Board.levels`."""

NO_ITEM: Final = 0

Number = TypeVar("Number", bound=np.generic)


class Board(NamedTuple):
    """Arrays, so that kernels can share it; rows may be replaced when they grow."""

    pages: Rows
    records: Rows
    attempts: Rows
    hosts: Rows
    wheel: Wheel
    listed: NDArray[np.int32]
    """Rows of the listed pages."""
    priorities: NDArray[np.float64]
    """Of the listed pages, when slots were last filled."""
    urgent: NDArray[np.int32]
    """Heap of urgent pages, the most urgent first; entries of pages that have left stay."""
    urgent_keys: NDArray[np.float64]
    parked: NDArray[np.int32]
    """Heap of hosts that wait for a token, the first to get one first."""
    parked_keys: NDArray[np.float64]
    """Minus the times at which they get it."""
    pen_rows: NDArray[np.int32]
    """By item of a pen: the page."""
    pen_priorities: NDArray[np.float64]
    """Of these pages, when slots were last filled for their host."""
    pen_next: NDArray[np.int32]
    """By item: another one of the same pen; 0: the last one."""
    sizes: NDArray[np.int64]
    """Listed pages; urgent entries; parked entries; first free item; first item never used."""
    levels: NDArray[np.float64]
    """Guard of pages that are placed; guard of all that are placed; request timeout; seconds of
    crawling for which pens keep pages."""
    uniform: bool


def make_board(expected: int, timeout: float, *, uniform: bool) -> Board:
    """A board without pages; `attach` gives it rows."""
    none = np.empty(0, np.int32)
    return Board(
        none,
        none,
        none,
        none,
        make_wheel(expected),
        none,
        np.empty(0),
        none,
        np.empty(0),
        none,
        np.empty(0),
        none,
        np.empty(0),
        none,
        np.zeros(5, np.int64),
        np.array([0.0, 0.0, timeout, 0.0]),
        uniform,
    )


def attach(
    board: Board, pages: Rows, records: Rows, attempts: Rows, hosts: Rows, touched: int
) -> Board:
    """The board over these rows, with room for so many more moves. Memory is taken when used."""
    sizes = board.sizes
    count, host_count = pages.size, hosts.size
    lists = 2 * count + 2
    urgent = int(sizes[URGENTS] + sizes[LISTS]) + count + 1
    parked = int(sizes[PARKED]) + 2 * host_count + 1
    return board._replace(
        pages=pages,
        records=records,
        attempts=attempts,
        hosts=hosts,
        wheel=with_room(board.wheel, pages.size + touched),
        listed=_with_room(board.listed, lists, int(sizes[LISTS])),
        priorities=_with_room(board.priorities, lists, int(sizes[LISTS])),
        urgent=_with_room(board.urgent, urgent, int(sizes[URGENTS])),
        urgent_keys=_with_room(board.urgent_keys, urgent, int(sizes[URGENTS])),
        parked=_with_room(board.parked, parked, int(sizes[PARKED])),
        parked_keys=_with_room(board.parked_keys, parked, int(sizes[PARKED])),
        pen_rows=_with_room(board.pen_rows, count + 2, int(sizes[NEXT_ITEM])),
        pen_priorities=_with_room(board.pen_priorities, count + 2, int(sizes[NEXT_ITEM])),
        pen_next=_with_room(board.pen_next, count + 2, int(sizes[NEXT_ITEM])),
    )


def _with_room(column: NDArray[Number], size: int, used: int) -> NDArray[Number]:
    if column.size >= size:
        return column
    larger = np.empty(size + size // 2, column.dtype)
    larger[:used] = column[:used]
    return larger


@compiled
def clear_board(board: Board, used: int, host_count: int, now: float, width: float) -> None:
    """All pages are asleep and their s* unset, all hosts without pens."""
    restart(board.wheel, now, width)
    board.sizes[:] = 0
    board.sizes[NEXT_ITEM] = 1
    for row in range(used):
        board.pages[row].bucket = ASLEEP
        board.pages[row].due_staleness = UNSET
    for number in range(host_count):
        host = board.hosts[number]
        host.guard = host.held_back = 0.0
        host.pen = NO_ITEM
        host.penned = 0
        host.is_limited = host.is_parked = 0
        host.weighed_at = -np.inf


@compiled
def guard_of(board: Board, host: int) -> float:
    """The guard of the pages of a host."""
    guard: float = max(board.levels[GUARD], board.hosts[host].guard)
    return guard


@compiled
def list_page(board: Board, row: int) -> None:
    """Look at a page whenever slots are filled."""
    board.pages[row].bucket = LISTED
    board.listed[board.sizes[LISTS]] = row
    board.sizes[LISTS] += 1


@compiled
def time_due(board: Board, row: int) -> float:
    """When a page has to be looked at."""
    page = board.pages[row]
    due: float = due_at(page, board.attempts, guard_of(board, page.host), board.uniform)
    return due


@compiled
def settle(board: Board, row: int) -> None:
    """Put a page that is in no list where it belongs."""
    if not put_off(board.wheel, board.pages, row, time_due(board, row)):
        list_page(board, row)


@compiled
def settle_touched(board: Board, rows: NDArray[np.int32], reweigh: bool) -> None:
    """Something happened to pages: put them where they belong now.

    Those that are listed or penned stay: they are looked at anyway. So do urgent ones, unless they
    are to be weighed again.
    """
    for row in rows:
        bucket = int(board.pages[row].bucket)
        if is_put_off(bucket):
            settle(board, row)
        elif reweigh and bucket == URGENT:
            list_page(board, row)


@compiled
def settle_all(board: Board, first: int, end: int) -> None:
    """Place anew all pages of some rows that are not listed, as the guard has changed."""
    for row in range(first, end):
        if is_put_off(int(board.pages[row].bucket)):
            board.pages[row].due_staleness = UNSET
            settle(board, row)


@compiled
def _settle_bucket(board: Board, bucket: int, found: NDArray[np.int32]) -> None:
    if board.wheel.heads[bucket] != 0:
        for row in take_bucket(board.wheel, board.pages, bucket, found):
            settle(board, row)


@compiled
def let_come(board: Board, time: float, enough: int) -> None:
    """List what comes up in the calendar until a time, and beyond until enough are listed."""
    found = np.empty(64, np.int32)
    skip_empty(board.wheel, time)
    furthest = FINE
    while not has_come(board.wheel, time) or (board.sizes[LISTS] < enough and furthest > 0):
        if has_come(board.wheel, time):
            furthest -= 1
        tick = next_tick(board.wheel)
        if tick % TICKS_IN_COARSE == 0:
            _settle_bucket(board, FINE + (tick // TICKS_IN_COARSE) % COARSE, found)
        _settle_bucket(board, tick % FINE, found)


@compiled
def push(
    keys: NDArray[np.float64], items: NDArray[np.int32], size: int, key: float, item: int
) -> int:
    """Add to a heap, the greatest key first; the new size."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] >= key:
            break
        keys[place] = keys[parent]
        items[place] = items[parent]
        place = parent
    keys[place] = key
    items[place] = item
    return size + 1


@compiled
def pop(keys: NDArray[np.float64], items: NDArray[np.int32], size: int) -> int:
    """Drop the top of a heap; the new size."""
    size -= 1
    key, item = keys[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    keys[place] = key
    items[place] = item
    return size


@compiled
def add_urgent(board: Board, row: int, priority: float) -> None:
    """Put a page of an upper tier into the heap."""
    board.pages[row].bucket = URGENT
    size = board.sizes[URGENTS]
    board.sizes[URGENTS] = push(board.urgent_keys, board.urgent, size, priority, row)


@compiled
def park(board: Board, number: int, ready: float) -> None:
    """Let a host wait until a time; an earlier entry of it counts no more."""
    if ready == math.inf:
        board.hosts[number].ready_at = math.inf
        board.hosts[number].is_parked = 1
        return
    board.hosts[number].ready_at = ready
    board.hosts[number].is_parked = 1
    size = board.sizes[PARKED]
    board.sizes[PARKED] = push(board.parked_keys, board.parked, size, -ready, number)
