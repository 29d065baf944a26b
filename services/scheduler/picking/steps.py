"""What every way of filling slots does: pages go on their way, hosts at their limits aside."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, park
from services.scheduler.picking.board_rows import LEFT, wide
from services.scheduler.picking.heap import pop
from services.scheduler.picking.line_heaps import IN_LINE, leave
from services.scheduler.picking.lines import (
    AT_ONCE,
    is_line_open,
    join_line,
    let_wait,
    opens_at,
    park_line,
)
from services.scheduler.picking.pens import (
    add_to_pen,
    best_of_pen,
    dissolve_pen,
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
from services.scheduler.state.hosts import note_value, take_token, usable_from, use_slots
from services.scheduler.state.rows import NEVER, NO_HOST, Rows
from shared.policy.compiled import compiled

NOBODY: Final = -1
"""Items below are hosts whose pens take part, or lines of them: `item_of`."""

_LARGE_HOST: Final = 4096
"""Pages of a host that are not all placed anew in the middle of a tick without need."""

_LET_GO: Final = 4
"""Hosts that leave a line at a tick whose groups let them be crawled, if nobody wants to."""


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
    """A host that was parked and may be crawled again, which is parked no more; or -2 - a line that
    was, with a host in it. `NOBODY`: there is none."""
    while board.state[0].parked > 0 and -board.parked_keys[0] <= now:
        ready, number = -board.parked_keys[0], wide(board.parked[0])
        board.state[0].parked = pop(board.parked_keys, board.parked, board.state[0].parked)
        if number < NOBODY:
            if _is_released(board, -2 - number, ready, now):
                return number
            continue
        host = board.hosts[number]
        if host.expires_at == ready:
            host.expires_at = NEVER
            if host.is_parked == IN_LINE:
                _renew(board, number, now)
                continue
        if host.is_parked != 1 or host.ready_at != ready:
            continue
        usable = usable_from(host)
        if usable > now:
            park(board, number, usable)
            continue
        if is_line_open(board, number, now):
            host.is_parked = 0
            return number
        join_line(board, number, now)
    return NOBODY


@compiled
def _is_released(board: Board, number: int, ready: float, now: float) -> bool:
    """Whether a line that was parked until a time may be offered."""
    line = board.lines[number]
    if not line.is_parked or line.ready_at != ready:
        return False
    line.is_parked = 0
    if line.first == NO_HOST:
        return False
    opens = opens_at(board, number, now)
    if opens > now:
        park_line(board, number, opens)
        return False
    return True


@compiled
def _renew(board: Board, number: int, now: float) -> None:
    """Find the bound anew of a host that waits in line; without pages it waits no more."""
    host = board.hosts[number]
    leave(board.hosts, board.lines, number)
    if host.penned == 0 and not has_own_guard(board, number):
        dissolve_pen(board, number)
    else:
        join_line(board, number, now)


@compiled
def item_of(board: Board, line: int) -> int:
    """What stands for a line where hosts take part: a number beyond theirs."""
    return -2 - int(board.hosts.size) - line


@compiled
def limit_host(board: Board, number: int, row: int, priority: float, now: float) -> None:
    """A page cannot be crawled because its host has no token: put it into the host's pen."""
    host = board.hosts[number]
    if not host.is_limited:
        host.is_limited = 1
        host.weighed_at = now
    add_to_pen(board, row, priority, now)
    shrink_pen(board, number, now)
    if not host.is_parked:
        host.held_back = priority
        let_wait(board, number, now)


@compiled
def can_go_on(board: Board, number: int, now: float) -> bool:
    """After a crawl of a host with a pen: whether it may be crawled once more; else it waits."""
    host = board.hosts[number]
    usable = usable_from(host)
    if usable <= now and is_line_open(board, number, now):
        return True
    host.held_back = best_of_pen(board, number)
    if usable > now:
        park(board, number, usable)
    else:
        board.lines[host.line].level = host.offer
        join_line(board, number, now)
    return False


@compiled
def close_offers(
    board: Board,
    items: NDArray[np.int32],
    size: int,
    now: float,
) -> None:
    """Clean up after hosts, and lines of them, that were offered and not wanted."""
    for place in range(size):
        if items[place] < NOBODY:
            number = -2 - wide(items[place])
            if number >= board.hosts.size:
                _close_line(board, number - int(board.hosts.size), now)
                continue
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
def _close_line(board: Board, number: int, now: float) -> None:
    """Let a line that was offered and not wanted wait for the next tick; some hosts leave it, so
    that it comes to an end."""
    line = board.lines[number]
    if not line.is_offered:
        return
    park_line(board, number, AT_ONCE)
    if opens_at(board, number, now) > now:
        return
    for _ in range(_LET_GO):
        if line.first == NO_HOST:
            break
        below = board.hosts[line.first].line_below
        host = wide(line.first if below == NO_HOST else below)
        if has_own_guard(board, host) and board.hosts[host].pages > _LARGE_HOST:
            break
        leave(board.hosts, board.lines, host)
        release_host(board, host)


@compiled
def drop_left(board: Board) -> None:
    """Clean up after pages that have left the list; those that doze were not picked."""
    listed, state = board.listed, board.state[0]
    kept = state.dozing
    for place in range(kept, state.listed):
        if listed[place].row != LEFT:
            if kept < place:
                listed[kept] = listed[place]
            kept += 1
    state.listed = kept
