"""What every way of filling slots does: pages go on their way, hosts at their limits aside."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, park
from services.scheduler.picking.board_rows import LEFT
from services.scheduler.picking.heap import pop
from services.scheduler.picking.pens import (
    add_to_pen,
    best_of_pen,
    has_own_guard,
    release_host,
    shrink_pen,
    waits_for_group,
)
from services.scheduler.picking.priority import (
    BY_VALUE,
    HIGHEST_VALUE,
    RETRY,
    Terms,
    crawl_value_of,
    tier_of,
    urgent_from,
)
from services.scheduler.state.attempts import begin_request, failures_of
from services.scheduler.state.hosts import crawlable_from, note_value, take_token, use_slots
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled

NOBODY: Final = -1
"""Items below are hosts whose pens take part."""

_LARGE_HOST: Final = 4096
"""Pages of a host that are not all placed anew in the middle of a tick without need."""


@compiled
def commit(
    pages: Rows,
    attempts: Rows,
    hosts: Rows,
    groups: Rows,
    pick: Any,
    timeout: float,
    first_retry: float,
    terms: Terms,
) -> float:
    """Send a picked page on its way: in flight, its host's token taken, the pick completed.

    Args:
        pages: rows of the shard.
        attempts: with room for one more.
        hosts: rows of the hosts.
        groups: rows of the groups of hosts.
        pick: has its row, its slot's time and its priority.
        timeout: clock seconds until the request counts as unanswered.
        first_retry: clock seconds that a page is left alone after its first failure.
        terms: what priorities go by.

    Returns:
        when the page is looked at again, if nobody answers.
    """
    page, now = pages[pick.row], pick.time
    host = hosts[page.host]
    pick.tier = BY_VALUE
    pick.value = pick.priority
    take_token(host, now)
    use_slots(host, groups, now)
    if pick.priority > HIGHEST_VALUE:
        pick.tier = tier_of(page, attempts, now, terms)
        pick.value = crawl_value_of(page, now, terms)
    else:
        note_value(host, pick.priority)
    requested_us = int(np.floor(now * 1e6 + 0.5))
    begin_request(attempts, page, now + timeout, requested_us, first_retry)
    attempt = attempts[page.attempt]
    if pick.tier == BY_VALUE and failures_of(page, attempt) > 1:
        pick.tier = RETRY
    again_at: float = min(attempt.retry_at, urgent_from(page, attempt))
    return again_at


@compiled
def next_released(board: Board, now: float) -> int:
    """A host that was parked and has a token again, which is parked no more; `NOBODY`: none has."""
    while board.state[0].parked > 0 and -board.parked_keys[0] <= now:
        ready, number = -board.parked_keys[0], int(board.parked[0])
        board.state[0].parked = pop(board.parked_keys, board.parked, board.state[0].parked)
        host = board.hosts[number]
        if not host.is_parked or host.ready_at != ready:
            continue
        usable = crawlable_from(host, board.groups, now)
        if usable > now:
            park(board, number, usable)
            continue
        host.is_parked = 0
        return number
    return NOBODY


@compiled
def limit_host(board: Board, number: int, row: int, priority: float, now: float) -> None:
    """A page cannot be crawled because its host has no token: put it into the host's pen."""
    host = board.hosts[number]
    if not host.is_limited:
        host.is_limited = 1
        host.weighed_at = now
    add_to_pen(board, row, priority)
    shrink_pen(board, number, now)
    if not host.is_parked:
        host.held_back = priority
        park(board, number, crawlable_from(host, board.groups, now))


@compiled
def can_go_on(board: Board, number: int, now: float) -> bool:
    """After a crawl of a host with a pen: whether it has one more token; else it waits for it."""
    host = board.hosts[number]
    usable = crawlable_from(host, board.groups, now)
    if usable <= now:
        return True
    host.held_back = best_of_pen(board, number)
    park(board, number, usable)
    return False


@compiled
def close_offers(
    board: Board,
    items: NDArray[np.int32],
    size: int,
    now: float,
) -> None:
    """Clean up after hosts that were offered and not wanted."""
    for place in range(size):
        if items[place] < NOBODY:
            number = -2 - int(items[place])
            host = board.hosts[number]
            if host.is_parked or not host.is_limited:
                continue
            if waits_for_group(board, number, host.offer, now):
                continue
            if has_own_guard(board, number) and host.pages > _LARGE_HOST:
                park(board, number, now)
            else:
                release_host(board, number)


@compiled
def drop_left(board: Board) -> None:
    """Clean up after pages that have left the list."""
    listed, state = board.listed, board.state[0]
    kept = 0
    for place in range(state.listed):
        if listed[place].row != LEFT:
            if kept < place:
                listed[kept] = listed[place]
            kept += 1
    state.listed = kept
