"""Filling slots with the most urgent pages.

All slots of one call are filled by the priorities that pages have at the first of them: each gets
the most urgent page whose host has a token at the slot's own time. What is chosen is what a look
at every page would choose, and known to be so while it is not below the guard of those that were
not looked at.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import (
    LISTED,
    URGENT,
    Board,
    add_urgent,
    list_page,
)
from services.scheduler.picking.board_rows import LEFT, wide
from services.scheduler.picking.heap import pop, push
from services.scheduler.picking.host_sweeps import refill
from services.scheduler.picking.line_heaps import IN_LINE
from services.scheduler.picking.lines import call_out, offer_line
from services.scheduler.picking.pens import (
    best_of_pen,
    dissolve_pen,
    take_best,
    waits_for_group,
    weigh_pen,
)
from services.scheduler.picking.priority import HIGHEST_VALUE, Terms, priority_of
from services.scheduler.picking.steps import (
    NOBODY,
    can_go_on,
    close_offers,
    commit,
    drop_left,
    item_of,
    limit_host,
    next_released,
)
from services.scheduler.picking.weighing import (
    put_elsewhere,
    queue_listed,
    weigh_entry,
    weigh_listed,
)
from services.scheduler.picking.wheel import put_off
from services.scheduler.state.hosts import crawlable_from
from services.scheduler.state.rows import NO_HOST, Rows
from shared.policy.compiled import compiled

PICK: Final = np.dtype(
    [
        ("row", np.int64),  # -1: nothing to crawl
        ("time", np.float64),
        ("priority", np.float64),
        ("value", np.float64),
        ("tier", np.int64),
        ("lane", np.int64),  # the class with a share whose own slot it is; 0: everybody's
    ],
    align=True,
)


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
    number = next_released(board, now)
    while number != NOBODY:
        if number < NOBODY:
            size = _offer_line(board, keys, items, size, -2 - number)
        else:
            size = _offer(board, keys, items, size, number, weighed)
        number = next_released(board, now)
    return size


@compiled
def _offer_line(
    board: Board, keys: NDArray[np.float64], items: NDArray[np.int32], size: int, line: int
) -> int:
    """Let the host on top of a line take part, by its bound; the new size of the heap."""
    if not offer_line(board, line):
        return size
    return push(keys, items, size, board.lines[line].offer, item_of(board, line))


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
    best = refill(board, number, best_of_pen(board, number), weighed)
    host.offer = best
    if best > 0.0:
        return push(keys, items, size, best, -2 - number)
    if not host.swept_from > 0.0:
        dissolve_pen(board, number)
    return size


@compiled
def _next_urgent(
    board: Board, keys: NDArray[np.float64], items: NDArray[np.int32], size: int, now: float
) -> tuple[float, int]:
    """Priority of the most urgent page of the heap, which is then on top; 0 without any.

    A page that something happened to meanwhile may be urgent no more: it takes part as the listed
    ones do, in whose heap there must be room. The new size of that one.
    """
    priority = 0.0
    while board.state[0].urgent > 0:
        row = board.urgent[0]
        page = board.pages[row]
        if page.bucket == URGENT:
            priority = priority_of(page, board.attempts, now, board.terms)
            if priority == board.urgent_keys[0]:
                return priority, size
        board.state[0].urgent = pop(board.urgent_keys, board.urgent, board.state[0].urgent)
        if page.bucket == URGENT:
            if priority > HIGHEST_VALUE:
                add_urgent(board, row, priority)
            else:
                place = board.state[0].listed
                list_page(board, row)
                if priority > 0.0:
                    size = push(keys, items, size, priority, place)
    return 0.0, size


@compiled
def _pop_urgent(board: Board) -> int:
    row = wide(board.urgent[0])
    state = board.state[0]
    state.urgent = pop(board.urgent_keys, board.urgent, state.urgent)
    return row


@compiled
def _take_entry(
    board: Board,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    item: int,
    weighed: float,
    now: float,
) -> tuple[int, int]:
    """Take a listed page that was on top of the heap; if there was but a bound of it, it takes part
    anew by its priority.

    Returns:
        its row, `LEFT` if it is not to be picked now; the new size of the heap.
    """
    entry = board.listed[item]
    if not entry.is_exact:
        if weigh_entry(board.pages, board.attempts, board.hosts, entry, weighed, board.terms):
            return LEFT, push(keys, items, size, entry.priority, item)
        number = wide(entry.host)
        put_elsewhere(board, item, weighed)
        host = board.hosts[number]
        # What takes part already, its pen or its line, now has a page that may be worth more.
        if host.is_limited and not host.is_parked:
            size = _offer(board, keys, items, size, number, weighed)
        elif host.is_parked == IN_LINE:
            size = _release_hosts(board, keys, items, size, weighed, now)
        return LEFT, size
    row = wide(entry.row)
    entry.row = LEFT
    # It may have been listed so often since the last look that two entries seem its own.
    return (row if board.pages[row].bucket == LISTED else LEFT), size


@compiled
def _take_next(
    board: Board,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    weighed: float,
    pick: Any,
    floor: float,
) -> tuple[int, int]:
    """Take the most urgent page that can be crawled at `pick.time`, if it is worth `floor`.

    Where very many urgent pages are of hosts that cannot be crawled, the others have to wait for
    the next slots (`STATE`): to find them would take seconds. `pick` gets its row, or -1, and its
    priority, or that of the best there is.

    Returns:
        -2 - its host if it was penned, else `NOBODY`; the new size of the heap.
    """
    now = pick.time
    pick.row = -1
    while True:
        urgent = 0.0
        if board.state[0].drains > 0:
            urgent, size = _next_urgent(board, keys, items, size, weighed)
        top = keys[0] if size > 0 else 0.0
        pick.priority = max(urgent, top)
        if not pick.priority > 0.0 or pick.priority < floor:
            return NOBODY, size
        is_urgent = urgent >= top
        if is_urgent:
            row = _pop_urgent(board)
        else:
            item = wide(items[0])
            size = pop(keys, items, size)
            if -2 - item >= board.hosts.size:
                line = -2 - item - board.hosts.size
                number = call_out(board, line, top, now)
                if number != NO_HOST:
                    size = _offer(board, keys, items, size, number, weighed)
                    size = _offer_line(board, keys, items, size, line)
                continue
            if item < NOBODY:
                host = board.hosts[-2 - item]
                if host.is_parked or host.offer != top:
                    continue  # another page took the token, or a later offer counts
                if waits_for_group(board, -2 - item, top, now):
                    continue
                pick.row = take_best(board, -2 - item)
                return item, size
            row, size = _take_entry(board, keys, items, size, item, weighed, now)
            if row == LEFT:
                continue
        number = wide(board.pages[row].host)
        if crawlable_from(board.hosts[number], board.groups, now) <= now:
            pick.row = row
            return NOBODY, size
        board.state[0].drains -= is_urgent
        limit_host(board, number, row, pick.priority, weighed)


@compiled
def _look_behind_bounds(
    pages: Rows,
    attempts: Rows,
    hosts: Rows,
    listed: Rows,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    weighed: float,
    floor: float,
    terms: Terms,
) -> None:
    """Weigh listed pages on top of which there are but bounds, until one is there whose priority is
    known, or that may not be picked; the heap stays as large."""
    while size > 0 and items[0] >= 0 and keys[0] >= floor and not listed[items[0]].is_exact:
        item = items[0]
        if not weigh_entry(pages, attempts, hosts, listed[item], weighed, terms):
            return
        pop(keys, items, size)
        push(keys, items, size - 1, listed[item].priority, item)


@compiled
def _take_listed(
    pages: Rows,
    hosts: Rows,
    groups: Rows,
    listed: Rows,
    keys: NDArray[np.float64],
    items: NDArray[np.int32],
    size: int,
    pick: Any,
    floor: float,
) -> bool:
    """Take the top of the heap, in the usual case: a listed page whose host has a token."""
    if size == 0 or keys[0] < floor or items[0] < 0 or not listed[items[0]].is_exact:
        return False
    row = listed[items[0]].row
    if pages[row].bucket != LISTED:
        return False
    if crawlable_from(hosts[pages[row].host], groups, pick.time) > pick.time:
        return False
    pick.row, pick.priority = row, keys[0]
    listed[items[0]].row = LEFT
    pop(keys, items, size)
    return True


@compiled
def fill_slots(
    board: Board,
    weighed: float,
    slots: NDArray[np.float64],
    least: float,
    must_be_certain: bool,
    skip_below: float,
    picks: Rows,
) -> int:
    """Pick a page for each slot.

    Args:
        board: the pages; picked ones go in flight, their hosts' tokens are taken. There must be
            room for an attempt a slot.
        weighed: the time, clock seconds, whose priorities count; the calendar has come to it.
        slots: times, rising.
        least: priority below which a slot is rather left empty.
        must_be_certain: whether to stop before a pick that a look at all pages might not make.
        skip_below: listed pages that are known to be worth less are not looked at; then picks
            must be certain.
        picks: one `PICK` a slot, to be written.

    Returns:
        how many slots were settled.
    """
    pages, attempts, hosts, listed = board.pages, board.attempts, board.hosts, board.listed
    wheel, state, parked_keys = board.wheel, board.state[0], board.parked_keys
    groups = board.groups
    weigh_listed(board, weighed, skip_below, True)
    keys, items, size = queue_listed(board, max(least, skip_below), slots.size)
    certain_from = max(state.certain_from if must_be_certain else 0.0, skip_below)
    floor = max(least, certain_from)
    settled = 0
    for slot in range(slots.size):
        pick, item = picks[slot], NOBODY
        pick.time = slots[slot]
        if state.parked > 0 and -parked_keys[0] <= pick.time:
            size = _release_hosts(board, keys, items, size, weighed, pick.time)
        if size > 0 and items[0] >= 0 and not listed[items[0]].is_exact:
            _look_behind_bounds(
                pages, attempts, hosts, listed, keys, items, size, weighed, floor, board.terms
            )
        if state.urgent == 0 and _take_listed(
            pages, hosts, groups, listed, keys, items, size, pick, floor
        ):
            size -= 1
        else:
            item, size = _take_next(board, keys, items, size, weighed, pick, floor)
            if pick.row < 0 and max(pick.priority, least) < certain_from:
                break
        settled += 1
        if pick.row < 0:
            continue
        again_at = commit(
            pages, attempts, hosts, groups, pick, state.timeout, state.first_retry, board.terms
        )
        if not put_off(wheel, pages, pick.row, again_at):
            list_page(board, pick.row)
        number = wide(pages[pick.row].host)
        takes_part = hosts[number].is_limited and not hosts[number].is_parked
        if takes_part and can_go_on(board, number, pick.time) and item < NOBODY:
            size = _offer(board, keys, items, size, number, weighed)
    close_offers(board, items, size, slots[slots.size - 1])
    drop_left(board)
    return settled
