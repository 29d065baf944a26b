"""Filling slots where reasons to crawl have parts of them, and take turns (`turns`).

Each slot goes to the most urgent page of the sharer whose turn it is, of those whose hosts have a
token at the slot's own time: a queue for each upper tier, and one by value. A host at its limit
takes part in each queue with the best of its pen. Everything else is as in `filling`.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import LISTED, URGENT, Board, add_urgent, list_page
from services.scheduler.picking.board_rows import LEFT, UPPER_TIERS, wide
from services.scheduler.picking.heap import pop, push
from services.scheduler.picking.lines import call_out, offer_line
from services.scheduler.picking.pens import (
    best_of_pen,
    best_of_queue,
    dissolve_pen,
    fill_pen,
    lacks_best,
    take_worth,
    waits_for_group,
    weigh_pen,
)
from services.scheduler.picking.priority import HIGHEST_VALUE, priority_of, queue_of
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
from services.scheduler.picking.turns import NOBODY_WAITS, REST, next_turn, take_turn
from services.scheduler.picking.urgent_heaps import pop_urgent
from services.scheduler.picking.weighing import queue_listed, weigh_listed
from services.scheduler.picking.wheel import put_off
from services.scheduler.state.hosts import crawlable_from
from services.scheduler.state.rows import NO_HOST, Rows
from shared.policy.compiled import compiled
from shared.policy.kernels.copying import copy_values

_IDLE: Final = 0
"""A queue has nothing to crawl."""

_FOUND: Final = 1
_UNSURE: Final = 2
"""There is nothing, but a page that was not looked at may be worth a crawl."""

_MOVED: Final = 3
"""A page has come to another queue: it may be that one's turn now."""

_CALLED: Final = 4
"""A host was called out of its line, to take part."""


class Offers(NamedTuple):
    """By queue: a heap of what takes part beside the urgent pages."""

    keys: NDArray[np.float64]
    items: NDArray[np.int32]
    """As in `filling`: places of the list, or -2 - a host."""
    sizes: NDArray[np.int64]


@compiled
def _queue_offers(board: Board, least: float, slots: int) -> Offers:
    """The listed pages, in the queue by value."""
    keys, items, size = queue_listed(board, least, slots)
    offers = Offers(
        np.empty((UPPER_TIERS + 1, keys.size)),
        np.empty((UPPER_TIERS + 1, keys.size), np.int32),
        np.zeros(UPPER_TIERS + 1, np.int64),
    )
    copy_values(keys[:size], offers.keys[0])
    copy_values(items[:size], offers.items[0])
    offers.sizes[0] = size
    return offers


@compiled
def _with_room(board: Board, offers: Offers) -> Offers:
    """With room for one more in each queue, and for the urgent pages, should they be so no more."""
    used, width = offers.sizes.max(), offers.keys.shape[1]
    if used + 1 + board.state[0].urgent <= width:
        return offers
    keys = np.empty((UPPER_TIERS + 1, 2 * (used + 1 + board.state[0].urgent)))
    items = np.empty(keys.shape, np.int32)
    for queue in range(UPPER_TIERS + 1):
        copy_values(offers.keys[queue, :used], keys[queue])
        copy_values(offers.items[queue, :used], items[queue])
    return Offers(keys, items, offers.sizes)


@compiled
def _push(offers: Offers, queue: int, key: float, item: int) -> None:
    sizes = offers.sizes
    sizes[queue] = push(offers.keys[queue], offers.items[queue], sizes[queue], key, item)


@compiled
def _pop(offers: Offers, queue: int) -> None:
    sizes = offers.sizes
    sizes[queue] = pop(offers.keys[queue], offers.items[queue], sizes[queue])


@compiled
def _offer(board: Board, offers: Offers, number: int, weighed: float) -> Offers:
    """Let the best of each queue in a host's pen take part."""
    offers = _with_room(board, offers)
    weigh_pen(board, number, weighed)
    if lacks_best(board, number):
        fill_pen(board, number, weighed)
    board.hosts[number].offer = best_of_pen(board, number)
    if not board.hosts[number].offer > 0.0:
        dissolve_pen(board, number)
        return offers
    for queue in range(UPPER_TIERS + 1):
        best = best_of_queue(board, number, queue)
        if best > 0.0:
            _push(offers, queue, best, -2 - number)
    return offers


@compiled
def _offer_line(board: Board, offers: Offers, line: int) -> Offers:
    """Let the host on top of a line take part in each queue in which it may have a page."""
    offers = _with_room(board, offers)
    if offer_line(board, line):
        bound = board.lines[line].offer
        for queue in range(queue_of(bound, True) + 1):
            _push(offers, queue, bound, item_of(board, line))
    return offers


@compiled
def _release_hosts(board: Board, offers: Offers, weighed: float, now: float) -> Offers:
    """Let hosts that have a token again take part."""
    number = next_released(board, now)
    while number != NOBODY:
        if number < NOBODY:
            offers = _offer_line(board, offers, -2 - number)
        else:
            offers = _offer(board, offers, number, weighed)
        number = next_released(board, now)
    return offers


@compiled
def _next_urgent(board: Board, offers: Offers, queue: int, now: float) -> tuple[float, bool]:
    """Priority of the most urgent page of a tier's heap, which is then on top; 0 without any.

    Pages that something happened to go where they belong; whether one came to another queue.
    """
    size = board.urgent.size // UPPER_TIERS
    first = (queue - 1) * size
    has_moved = False
    while board.state[0].urgent_by_tier[queue - 1] > 0:
        row, key = board.urgent[first], board.urgent_keys[first]
        page = board.pages[row]
        priority = 0.0
        if page.bucket == URGENT:
            priority = priority_of(page, board.attempts, now, board.terms)
            if priority == key:
                return priority, has_moved
        pop_urgent(board.urgent_keys, board.urgent, board.state, queue - 1)
        if page.bucket != URGENT:
            continue
        has_moved = has_moved or queue_of(priority, True) != queue
        if priority > HIGHEST_VALUE:
            add_urgent(board, row, priority)
        else:
            place = board.state[0].listed
            list_page(board, row)
            if priority > 0.0:
                _push(offers, 0, priority, place)
    return 0.0, has_moved


@compiled
def _drop_taken(board: Board, offers: Offers, queue: int) -> None:
    """Drop listed pages on top that are somewhere else by now: see `filling`."""
    while offers.sizes[queue] > 0 and offers.items[queue, 0] >= 0:
        row = board.listed[offers.items[queue, 0]].row
        if board.pages[row].bucket == LISTED:
            return
        _pop(offers, queue)


@compiled
def _take(
    board: Board,
    offers: Offers,
    queue: int,
    weighed: float,
    pick: Any,
    least: float,
    certain: float,
) -> tuple[int, int]:
    """Take the most urgent page of a queue that can be crawled at `pick.time`; by value, if it is
    worth `least`, and known to be the best. `pick` gets its row and its priority.

    Returns:
        what became of it; and -2 - its host if it was penned, or was called, else `NOBODY`.
    """
    while True:
        urgent = 0.0
        if queue > 0 and board.state[0].drains > 0:
            urgent, has_moved = _next_urgent(board, offers, queue, weighed)
            if has_moved:
                return _MOVED, NOBODY
        _drop_taken(board, offers, queue)
        top = offers.keys[queue, 0] if offers.sizes[queue] > 0 else 0.0
        pick.priority = max(urgent, top)
        if queue == 0 and pick.priority < max(least, certain):
            is_unsure = max(pick.priority, least) < certain
            return _UNSURE if is_unsure else _IDLE, NOBODY
        if not pick.priority > 0.0:
            return _IDLE, NOBODY
        is_urgent = urgent >= top
        if is_urgent:
            row = wide(board.urgent[(queue - 1) * (board.urgent.size // UPPER_TIERS)])
            pop_urgent(board.urgent_keys, board.urgent, board.state, queue - 1)
        else:
            item = wide(offers.items[queue, 0])
            _pop(offers, queue)
            if -2 - item >= board.hosts.size:
                called = call_out(board, -2 - item - board.hosts.size, top, pick.time)
                if called != NO_HOST:
                    return _CALLED, -2 - called
                continue
            if item < NOBODY:
                if _is_offered(board, -2 - item, queue, top) and not waits_for_group(
                    board, -2 - item, top, pick.time
                ):
                    pick.row = take_worth(board, -2 - item, top)
                    return _FOUND, item
                continue
            row = wide(board.listed[item].row)
            board.listed[item].row = LEFT
        number = wide(board.pages[row].host)
        if crawlable_from(board.hosts[number], board.groups, pick.time) <= pick.time:
            pick.row = row
            return _FOUND, NOBODY
        board.state[0].drains -= is_urgent
        limit_host(board, number, row, pick.priority, weighed)


@compiled
def _is_offered(board: Board, number: int, queue: int, priority: float) -> bool:
    """Whether an offer of a host counts: it has a token still, and a page of just that."""
    host = board.hosts[number]
    is_open = host.is_limited and not host.is_parked
    return bool(is_open and best_of_queue(board, number, queue) == priority)


@compiled
def _take_turn(
    board: Board, offers: Offers, weighed: float, pick: Any, least: float, certain: float
) -> tuple[int, int]:
    """Take a page for the sharer whose turn it is, of those that have one; as `_take`."""
    state, idle = board.state[0], 0
    while True:
        sharer = next_turn(state.shares, state.tags, idle)
        # Who has no share gets what all others leave.
        first = last = sharer
        if sharer in (REST, NOBODY_WAITS):
            first, last = UPPER_TIERS, 0
        found, item = _IDLE, NOBODY
        for queue in range(first, last - 1, -1):
            if not (idle >> queue) & 1:
                found, item = _take(board, offers, queue, weighed, pick, least, certain)
                if found != _IDLE:
                    break
                idle |= 1 << queue
        if found == _MOVED:
            idle = 0
            continue
        if found == _FOUND and sharer != NOBODY_WAITS:
            take_turn(state.shares, state.tags, sharer)
        if found != _IDLE or sharer in (REST, NOBODY_WAITS):
            return found, item


@compiled
def fill_in_turns(
    board: Board,
    weighed: float,
    slots: NDArray[np.float64],
    least: float,
    must_be_certain: bool,
    skip_below: float,
    picks: Rows,
) -> int:
    """Pick a page for each slot, by turns; see `filling.fill_slots`."""
    pages, hosts, state = board.pages, board.hosts, board.state[0]
    weigh_listed(board, weighed, skip_below, False)
    offers = _queue_offers(board, max(least, skip_below), slots.size)
    certain = max(state.certain_from if must_be_certain else 0.0, skip_below)
    settled = 0
    for slot in range(slots.size):
        pick = picks[slot]
        pick.time, pick.row = slots[slot], -1
        offers = _release_hosts(board, _with_room(board, offers), weighed, pick.time)
        found, item = _take_turn(board, offers, weighed, pick, least, certain)
        while found == _CALLED:
            offers = _offer_line(board, offers, wide(hosts[-2 - item].in_line))
            offers = _offer(board, offers, -2 - item, weighed)
            found, item = _take_turn(board, offers, weighed, pick, least, certain)
        if found == _UNSURE:
            break
        settled += 1
        if found != _FOUND:
            continue
        again_at = commit(
            pages, board.attempts, hosts, board.groups, pick, state.timeout, state.first_retry,
            board.terms,
        )  # fmt: skip
        if not put_off(board.wheel, pages, pick.row, again_at):
            list_page(board, pick.row)
        number = wide(pages[pick.row].host)
        takes_part = hosts[number].is_limited and not hosts[number].is_parked
        if takes_part and can_go_on(board, number, pick.time) and item < NOBODY:
            offers = _offer(board, offers, number, weighed)
    for queue in range(UPPER_TIERS + 1):
        close_offers(board, offers.items[queue], offers.sizes[queue], slots[slots.size - 1])
    drop_left(board)
    return settled
