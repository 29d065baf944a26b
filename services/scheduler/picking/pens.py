"""Pens: the ripe pages of hosts that are at their limits.

They must not be looked at for each slot, nor may there be many of them. So each such host keeps
the best few of its pages apart, and has a guard of its own, above the global one: what is below it
stays in the calendar until it gets there. When the host has a token and nothing in its pen reaches
its guard, its pen is filled anew, by a look at all of its pages.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import (
    NO_ITEM,
    PENNED,
    Board,
    guard_of,
    list_page,
    settle,
    time_due,
)
from services.scheduler.picking.board_rows import UPPER_TIERS, wide
from services.scheduler.picking.lines import heed_page, interval_of, is_line_open, let_wait
from services.scheduler.picking.pen_quotas import just_above, least_kept, raise_guards
from services.scheduler.picking.priority import HIGHEST_VALUE, due_at, priority_of, queue_of
from services.scheduler.picking.wheel import is_put_off, put_off
from services.scheduler.state.hosts import capacity, pages_of, usable_from
from services.scheduler.state.rows import ASLEEP, NO_LINE, UNSET
from shared.policy.compiled import compiled
from shared.store.prefetch import AHEAD, prefetch

_LEAST: Final = 16.0
"""Pages that a pen keeps, for small hosts."""

_ROOTS: Final = 2.0
"""... and for large ones so many square roots of their pages: looking through the pen at each
crawl, and through all pages once a pen, then cost about the same."""

_LEAST_IN_LINE: Final = 2.0
_ROOTS_IN_LINE: Final = 0.5
"""The same of hosts that wait in line: their pens are looked at some eight times for each crawl."""


@compiled
def add_to_pen(board: Board, row: int, priority: float, now: float) -> None:
    """Put a page into the pen of its host."""
    item = board.state[0].free_item
    if item != NO_ITEM:
        board.state[0].free_item = board.pen_next[item]
    else:
        item = board.state[0].next_item
        board.state[0].next_item += 1
    page = board.pages[row]
    host = board.hosts[page.host]
    page.bucket = PENNED
    board.pen_rows[item] = row
    board.pen_priorities[item] = priority
    board.pen_next[item] = host.pen
    host.pen = item
    host.penned += 1
    heed_page(board, wide(page.host), row, now)


@compiled
def _free_item(board: Board, item: int) -> None:
    board.pen_next[item] = board.state[0].free_item
    board.state[0].free_item = item


@compiled
def quota_of(board: Board, number: int, now: float) -> int:
    """How many pages the pen of a host keeps."""
    host = board.hosts[number]
    reach = board.state[0].reach
    soon = capacity(host, now, now + reach)
    quota = _LEAST + _ROOTS * math.sqrt(host.pages) + 2.0 * soon
    if host.line != NO_LINE:
        soon = min(soon, reach / interval_of(board, wide(host.line)))
        quota = _LEAST_IN_LINE + _ROOTS_IN_LINE * math.sqrt(host.pages) + 2.0 * soon
    return int(min(quota, 1.0 + host.pages))


@compiled
def has_own_guard(board: Board, number: int) -> bool:
    """Whether pages of a host wait for longer than all others do."""
    host = board.hosts[number]
    outside = max(host.guard, host.swept_from)
    return bool(outside > board.state[0].guard or host.tier_guards.max() > 0.0)


@compiled
def lacks_best(board: Board, number: int) -> bool:
    """Whether the best of a queue may be outside the pen of a host, which was weighed."""
    host = board.hosts[number]
    best = best_of_queue(board, number, 0)
    if just_above(best) < host.guard and host.guard > board.state[0].guard:
        return True
    for queue in range(1, UPPER_TIERS + 1):
        if best_of_queue(board, number, queue) < host.tier_guards[queue - 1]:
            return True
    return False


@compiled
def _empty_pen(board: Board, number: int) -> NDArray[np.int32]:
    """Take all pages out of a pen; their rows. Their `bucket` is still PENNED."""
    host = board.hosts[number]
    rows = np.empty(host.penned, np.int32)
    item = host.pen
    count = 0
    while item != NO_ITEM:
        following = board.pen_next[item]
        rows[count] = board.pen_rows[item]
        count += 1
        _free_item(board, item)
        item = following
    host.pen = NO_ITEM
    host.penned = 0
    return rows


@compiled
def weigh_pen(board: Board, number: int, now: float) -> None:
    """Look at all pages of a pen; those that cannot be crawled now leave it."""
    host = board.hosts[number]
    if host.weighed_at == now:
        return
    host.weighed_at = now
    item, last = wide(host.pen), NO_ITEM
    while item != NO_ITEM:
        following = board.pen_next[item]
        row = board.pen_rows[item]
        page = board.pages[row]
        priority = priority_of(page, board.attempts, now, board.terms)
        if page.host == number and priority > 0.0:
            board.pen_priorities[item] = priority
            last = item
        else:
            _drop_item(board, number, item, last)
            settle(board, row)
        item = following


@compiled
def _drop_item(board: Board, number: int, item: int, last: int) -> None:
    """Take an item that follows `last` out of a pen."""
    if last == NO_ITEM:
        board.hosts[number].pen = board.pen_next[item]
    else:
        board.pen_next[last] = board.pen_next[item]
    _free_item(board, item)
    board.hosts[number].penned -= 1


@compiled
def leave_pen(board: Board, row: int) -> None:
    """Take a page out of the pen of its host, where it is; nothing can make it due then."""
    page = board.pages[row]
    last = NO_ITEM
    item = wide(board.hosts[page.host].pen)
    while item != NO_ITEM and board.pen_rows[item] != row:
        last = item
        item = board.pen_next[item]
    if item != NO_ITEM:
        _drop_item(board, wide(page.host), item, last)
    page.bucket = ASLEEP


@compiled
def best_of_pen(board: Board, number: int) -> float:
    """The greatest priority in a pen that was weighed; 0 if it is empty."""
    best = 0.0
    item = board.hosts[number].pen
    while item != NO_ITEM:
        best = max(best, board.pen_priorities[item])
        item = board.pen_next[item]
    return best


@compiled
def best_of_queue(board: Board, number: int, queue: int) -> float:
    """The greatest priority of a queue in a pen that was weighed; 0 without any."""
    best = 0.0
    item = board.hosts[number].pen
    while item != NO_ITEM:
        priority = board.pen_priorities[item]
        if priority > best and queue_of(priority, board.terms.in_turns) == queue:
            best = priority
        item = board.pen_next[item]
    return best


@compiled
def take_worth(board: Board, number: int, priority: float) -> int:
    """Take a page of just this priority out of a pen that was weighed; its row, or -1."""
    item, last = wide(board.hosts[number].pen), NO_ITEM
    while item != NO_ITEM:
        if board.pen_priorities[item] == priority:
            row: int = board.pen_rows[item]
            _drop_item(board, number, item, last)
            return row
        last = item
        item = board.pen_next[item]
    return -1


@compiled
def take_best(board: Board, number: int) -> int:
    """Take the most urgent page out of a pen that was weighed; its row, or -1."""
    best, before_best, last = NO_ITEM, NO_ITEM, NO_ITEM
    item = wide(board.hosts[number].pen)
    while item != NO_ITEM:
        if best == NO_ITEM or board.pen_priorities[item] > board.pen_priorities[best]:
            best, before_best = item, last
        last = item
        item = board.pen_next[item]
    if best == NO_ITEM:
        return -1
    row: int = board.pen_rows[best]
    _drop_item(board, number, best, before_best)
    return row


@compiled
def shrink_pen(board: Board, number: int, now: float) -> None:
    """Keep only the best pages of a pen that has become too large; the others wait for longer.

    Those that are as good within a tick cannot be put off, and there may be thousands of them: so
    it is tried again when there are twice as many, and not for each page that comes.
    """
    quota = quota_of(board, number, now)
    host = board.hosts[number]
    times = host.penned // quota
    if times < 2 or host.penned != times * quota or times & (times - 1) != 0:
        return
    weigh_pen(board, number, now)
    size = host.penned
    if size <= quota:
        return
    priorities = np.empty(size)
    item = host.pen
    for place in range(size):
        priorities[place] = board.pen_priorities[item]
        item = board.pen_next[item]
    leasts, spares, guards = least_kept(priorities, quota, 0.0, board.terms.in_turns)
    raise_guards(host, guards)
    item, last = wide(host.pen), NO_ITEM
    while item != NO_ITEM:
        following = board.pen_next[item]
        priority = board.pen_priorities[item]
        queue = queue_of(priority, board.terms.in_turns)
        if priority > leasts[queue] or (priority == leasts[queue] and spares[queue] > 0):
            if priority == leasts[queue]:
                spares[queue] -= 1
            last = item
        else:
            row = board.pen_rows[item]
            board.pages[row].due_staleness = UNSET
            if put_off(board.wheel, board.pages, row, _not_before(board, row, queue, now)):
                _drop_item(board, number, item, last)
            else:
                last = item
        item = following


@compiled
def _not_before(board: Board, row: int, queue: int, now: float) -> float:
    """When a page that is left out of a pen is looked at again.

    One of an upper tier that is as good as the last one kept sleeps until the pen is filled anew.
    """
    if queue > 0:
        return math.inf
    due = time_due(board, row)
    guard = guard_of(board, wide(board.pages[row].host))
    return math.inf if due <= now and guard > HIGHEST_VALUE else due


@compiled
def fill_pen(board: Board, number: int, now: float) -> None:
    """Find the best pages of a host among all of them, and let its guard be the least of these.

    Of pages that are as good as the least, only as many as there is room for: each is as right as
    the others, and there may be a million of them.
    """
    host = board.hosts[number]
    # Arrays by name: to pass the whole board for each page costs more than the work.
    pages, attempts, wheel, terms = board.pages, board.attempts, board.wheel, board.terms
    rows = pages_of(board.records, board.hosts, number)
    priorities = np.zeros(rows.size)
    for place in range(rows.size):
        if place + AHEAD < rows.size:
            prefetch(pages, rows[place + AHEAD])
        page = pages[rows[place]]
        if page.host == number:
            priorities[place] = priority_of(page, attempts, now, terms)
    quota, in_turns = quota_of(board, number, now), board.terms.in_turns
    leasts, spares, guards = least_kept(priorities, quota, board.state[0].guard, in_turns)
    host.guard = 0.0
    host.tier_guards[:] = 0.0
    raise_guards(host, guards)
    guard = guard_of(board, number)
    for place in range(rows.size):
        if place + AHEAD < rows.size:
            prefetch(pages, rows[place + AHEAD])
        row, priority = rows[place], priorities[place]
        page = pages[row]
        if page.host != number:
            continue
        # That of pages elsewhere, too: they come back under a guard that may be lower.
        page.due_staleness = UNSET
        if not is_put_off(page.bucket):
            continue
        if not (priority > 0.0 and just_above(priority) >= guard):
            if not put_off(wheel, pages, row, due_at(page, attempts, guard, terms)):
                list_page(board, row)
            continue
        queue = queue_of(priority, in_turns)
        if priority <= leasts[queue]:
            if spares[queue] <= 0 and put_off(
                wheel, pages, row, _not_before(board, row, queue, now)
            ):
                continue
            spares[queue] -= 1
        add_to_pen(board, row, priority, now)
    host.weighed_at = -np.inf
    weigh_pen(board, number, now)


@compiled
def waits_for_group(board: Board, number: int, best: float, now: float) -> bool:
    """Whether another host of a group of its has been crawled since a host was offered; it
    waits in line."""
    host = board.hosts[number]
    usable = usable_from(host)
    if host.line == NO_LINE or (usable <= now and is_line_open(board, number, now)):
        return False
    host.held_back = best
    let_wait(board, number, now)
    return True


@compiled
def dissolve_pen(board: Board, number: int) -> None:
    """The host is not at its limit any more: its pages are listed with all others."""
    host = board.hosts[number]
    host.is_limited = host.is_parked = 0
    host.held_back = 0.0
    if host.guard <= board.state[0].guard:
        # It must not hold pages back once the global one is lowered.
        host.guard = 0.0
    for row in _empty_pen(board, number):
        list_page(board, row)


@compiled
def release_host(board: Board, number: int) -> None:
    """The host is not at its limit any more, and has no guard of its own."""
    host = board.hosts[number]
    if has_own_guard(board, number):
        host.guard = 0.0
        for row in pages_of(board.records, board.hosts, number):
            page = board.pages[row]
            if page.host == number:
                page.due_staleness = UNSET
                if is_put_off(page.bucket):
                    settle(board, row)
    host.guard = host.swept_from = 0.0
    host.tier_guards[:] = 0.0
    dissolve_pen(board, number)
