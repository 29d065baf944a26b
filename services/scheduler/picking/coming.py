"""What comes up in the calendar as time passes: pages that may be worth a crawl by now.

A coarse bucket holds what comes up in a hundred seconds: of a hundred million pages a million. So
the next one is looked at from the moment on when the one before it has come up, some entries at
each tick; its pages go to the fine buckets of their own ticks.

Where very many come up in the same tick, as pages that were all crawled at once and have rested for
as long as they must, they are looked at some at each tick as well. Until then picks may not be the
best, and say so.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, is_own, settle_rows
from services.scheduler.picking.board_rows import LEFT
from services.scheduler.picking.host_sweeps import sweep_hosts
from services.scheduler.picking.priority import HIGHEST_VALUE, priority_of
from services.scheduler.picking.space import is_ready
from services.scheduler.picking.wheel import (
    COARSE,
    FINE,
    TICKS_IN_COARSE,
    begin_taking,
    ripening,
    skip_empty,
    take_bucket,
    take_late,
    take_some,
    tidy,
)
from services.scheduler.state.rows import UNSET
from shared.policy.compiled import compiled

_LOOKED_AT: Final = 65_536
"""Listed pages, beside sixteen for each that is wanted, among which those at hand are looked for:
some milliseconds."""

_MOST_AT_ONCE: Final = 1 / 64
"""Of all pages that come up in one tick of the calendar, where more do: the others wait some
seconds."""


@compiled
def at_hand(board: Board, first: int, time: float, enough: int) -> int:
    """How many listed pages, from a place in the list on, fill slots at a time; no more than
    `enough`, and as far as they are found soon.

    Not those that were only near in the calendar: in flight, or in their least interval. Nor those
    of hosts at their limits, which go to pens.
    """
    listed, pages, hosts = board.listed, board.pages, board.hosts
    count = 0
    last = min(board.state[0].listed, first + _LOOKED_AT + 16 * max(enough, 0))
    place = first
    while place < last and count < enough:
        entry = listed[place]
        if entry.row != LEFT:
            page = pages[entry.row]
            if is_own(pages, entry) and not hosts[page.host].is_limited:
                count += priority_of(page, board.attempts, time, board.terms) > 0.0
        place += 1
    return count


@compiled
def _settle_again(board: Board, rows: NDArray[np.int32]) -> None:
    """Put pages that were in the calendar where they belong."""
    if board.state[0].is_crowded:
        # Their s* is that of a guard long passed: it would list them all.
        for row in rows:
            board.pages[row].due_staleness = UNSET
    settle_rows(board, rows)


@compiled
def _settle_bucket(board: Board, bucket: int, most: int) -> bool:
    """Put the pages of a bucket that comes up where they belong, or if there are too many of them,
    the first of them; whether that is possible now."""
    wheel = board.wheel
    entries = wheel.chains[bucket].entries
    if entries == 0:
        return True
    if entries > most:
        if wheel.dial[0].late >= 0:
            return False
        if begin_taking(wheel, bucket):
            _settle_again(board, take_late(wheel, board.pages, most))
            return True
    _settle_again(board, take_bucket(wheel, board.pages, bucket))
    return True


@compiled
def _settle_tick(board: Board, most: int) -> bool:
    """Put the pages of the tick that has come where they belong, and those of a coarse bucket that
    begins with it; whether that is possible now."""
    tick = board.wheel.dial[0].current
    coarse = FINE + (tick // TICKS_IN_COARSE) % COARSE
    if tick % TICKS_IN_COARSE == 0 and not _settle_bucket(board, coarse, most):
        return False
    return _settle_bucket(board, tick % FINE, most)


@compiled
def let_come(board: Board, time: float, enough: int) -> None:
    """List what comes up in the calendar until a time, and beyond until enough are at hand."""
    wheel, state = board.wheel, board.state[0]
    dial = wheel.dial[0]
    most = max(state.few_pages, int(_MOST_AT_ONCE * state.used))
    if dial.late >= 0:
        _settle_again(board, take_late(wheel, board.pages, most))
    skip_empty(wheel, time)
    furthest = FINE
    last = int((time - dial.origin) / dial.width)
    if dial.current < last < dial.current + TICKS_IN_COARSE:
        bucket, entries = ripening(wheel, last - dial.current)
        _settle_again(board, take_some(wheel, board.pages, bucket, entries))
    while dial.current < last or (state.listed + state.urgent < enough and furthest > 0):
        if dial.current >= last:
            furthest -= 1
        dial.current += 1
        if not _settle_tick(board, most):
            dial.current -= 1
            break
    if dial.late >= 0:
        state.unsure_below = HIGHEST_VALUE


@compiled
def begin_tick(
    board: Board, used: int, slots: int, now: float, most: int, most_of_hosts: int, enough: int
) -> bool:
    """All that is done before slots are filled, in one call: each costs more than what is usually
    to be done.

    Args:
        board: over the rows as they are.
        used: rows of pages that are used.
        slots: that are to be filled.
        now: time of the first one.
        most: entries of the calendar that are tidied.
        most_of_hosts: pages of large hosts that are placed anew.
        enough: see `let_come`.

    Returns:
        whether the board was ready for it (`space.is_ready`); if not, nothing was done.
    """
    state = board.state[0]
    moves = slots + (most_of_hosts if state.sweeps_first >= 0 else 0)
    if not is_ready(board, used, moves):
        return False
    state.used = used
    state.drains = slots + most
    state.unsure_below = 0.0
    tidy(board.wheel, board.pages, used, most)
    sweep_hosts(board, most_of_hosts, now)
    let_come(board, now, enough)
    return True
