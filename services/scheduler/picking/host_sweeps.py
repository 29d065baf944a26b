"""Large hosts at their limits: their pens are filled by slices, some pages at each tick.

A look at all pages of a host finds the best of them, but of millions it takes seconds. So the guard
of a large host is lowered as that of all pages is: before its pen is empty, to what about as many
more pages reach as the pen keeps, and its pages are placed anew under it, a slice at each tick.
What was not placed yet is worth no more than the guard of before, `swept_from`. So what is crawled
meanwhile is the best for certain as long as the pen has a page that is worth more than that; it
has, unless its pages go faster than slices come. Picks below count as uncertain.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, park, settle_rows
from services.scheduler.picking.lines import let_wait
from services.scheduler.picking.pen_quotas import just_above
from services.scheduler.picking.pens import (
    best_of_pen,
    dissolve_pen,
    fill_pen,
    has_own_guard,
    quota_of,
)
from services.scheduler.picking.priority import priority_of
from services.scheduler.picking.wheel import is_put_off
from services.scheduler.state.hosts import NO_PAGE, usable_from
from services.scheduler.state.rows import UNSET
from shared.policy.compiled import compiled
from shared.policy.kernels.ranks import nth_greatest

_SAMPLED: Final = 4096
"""Pages of a host that tell how far to lower its guard, at most."""

_STEP: Final = (math.sqrt(5.0) - 1.0) / 2.0
"""Rows so far apart, as a part of all, are spread evenly over them, however many are taken."""

_SPARE: Final = 2.0
"""Standard deviations by which the sample may be wrong: a guard that is a little too low does no
harm, one that is too high finds too few pages."""


@compiled
def refill(board: Board, number: int, best: float, now: float) -> float:
    """See to it that the best page of a host is in its pen, which was weighed.

    Args:
        board: the pages; no tiers take turns.
        number: of the host, which has a token.
        best: the greatest priority in the pen.
        now: clock seconds.

    Returns:
        the greatest priority in the pen after it.
    """
    host, state = board.hosts[number], board.state[0]
    if host.pages <= state.few_pages and not host.swept_from > 0.0:
        if just_above(best) < host.guard and host.guard > state.guard:
            fill_pen(board, number, now)
            return best_of_pen(board, number)
        return best
    if not max(host.guard, host.swept_from) > state.guard:
        return best
    if not host.swept_from > 0.0 and 2 * host.penned < quota_of(board, number, now):
        _begin_sweep(board, number, now)
    outside = max(host.guard, host.swept_from)
    if just_above(best) < outside:
        state.unsure_below = max(state.unsure_below, outside)
    return best


@compiled
def _begin_sweep(board: Board, number: int, now: float) -> None:
    """Lower the guard of a host, and let it wait for its pages to be placed anew."""
    host, state = board.hosts[number], board.state[0]
    host.swept_from = host.guard
    host.guard = min(host.guard, _guard_for(board, number, now))
    # Where the last sweep ended: what it found is on its way, what it did not see comes first.
    host.sweep_end = host.sweep_at
    state.host_sweeps += 1
    if host.is_in_sweeps:
        return
    host.is_in_sweeps, host.sweeps_next = 1, -1
    if state.sweeps_first < 0:
        state.sweeps_first = number
    else:
        board.hosts[state.sweeps_last].sweeps_next = number
    state.sweeps_last = number


@compiled
def _guard_for(board: Board, number: int, now: float) -> float:
    """A guard that about as many pages outside a host's pen reach as the pen keeps; 0: all may."""
    state = board.state[0]
    found = np.empty(_SAMPLED)
    count = ripe = 0
    step = int(_STEP * state.used) | 1
    row = int(state.host_sweeps) % max(state.used, 1)
    for _ in range(min(state.few_pages, state.used)):
        page = board.pages[row]
        row = (row + step) % state.used
        if page.host == number:
            count += 1
            if is_put_off(page.bucket):
                priority = priority_of(page, board.attempts, now, board.terms)
                if priority > 0.0:
                    found[ripe] = priority
                    ripe += 1
            if count == _SAMPLED:
                break
    rank = quota_of(board, number, now) * count / max(board.hosts[number].pages, 1)
    place = int(rank + _SPARE * math.sqrt(rank) + _SPARE)
    if place >= ripe:
        return 0.0
    return nth_greatest(found[:ripe], place + 1)


@compiled
def sweep_hosts(board: Board, most: int, now: float) -> None:
    """Go on with placing the pages of hosts anew, so many of them; before slots are filled."""
    state = board.state[0]
    number = state.sweeps_first
    while number >= 0:
        host = board.hosts[number]
        if host.is_limited and not host.is_parked:
            # It had a token, and nothing in its pen.
            park(board, number, usable_from(host))
        number = host.sweeps_next
    while most > 0 and state.sweeps_first >= 0:
        number = state.sweeps_first
        host = board.hosts[number]
        if host.swept_from > 0.0:
            most -= _place_some(board, number, most, now)
        if not host.swept_from > 0.0:
            state.sweeps_first = host.sweeps_next
            host.is_in_sweeps = 0


@compiled
def _place_some(board: Board, number: int, most: int, now: float) -> int:
    """Place some pages of a host anew, from where it was ended; how many were looked at."""
    host = board.hosts[number]
    rows, found = _next_rows(board, number, most)
    count = 0
    for row in rows:
        page = board.pages[row]
        if page.host == number:
            # That of pages elsewhere, too: they come back under this guard.
            page.due_staleness = UNSET
            if is_put_off(page.bucket):
                found[count] = row
                count += 1
    settle_rows(board, found[:count])
    is_full = host.guard >= host.swept_from and host.penned >= quota_of(board, number, now)
    if is_full or rows.size < most or host.sweep_at == host.sweep_end:
        host.swept_from = 0.0
    return max(rows.size, 1)


@compiled
def _next_rows(board: Board, number: int, most: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The next rows on the list of a host, whose end leads to its beginning, up to where its sweep
    began; and room for as many."""
    host = board.hosts[number]
    rows = np.empty(most, np.int32)
    count = 0
    while count < most:
        row = host.sweep_at - 1 if host.sweep_at > 0 else host.first_page
        if row == NO_PAGE:
            break
        rows[count] = row
        count += 1
        host.sweep_at = board.records[row].next_of_host + 1
        if host.sweep_at == host.sweep_end:
            break
    return rows[:count], np.empty(count, np.int32)


@compiled
def fill_large_pens(board: Board, now: float) -> None:
    """Of large hosts that cannot take all that is ripe, list only the best: before any page is
    placed. A look at all their pages, for which nobody may wait."""
    for number in range(board.hosts.size):
        host = board.hosts[number]
        if host.pages <= board.state[0].few_pages:
            continue
        fill_pen(board, number, now)
        if not has_own_guard(board, number):
            dissolve_pen(board, number)
            continue
        host.is_limited = 1
        let_wait(board, number, now)
