"""Raising the guard: listed pages that are not needed soon go back to the calendar."""

from typing import Final

import numpy as np

from services.scheduler.picking.board import Board, is_own, time_due
from services.scheduler.picking.board_rows import LEFT
from services.scheduler.picking.wheel import put_off
from services.scheduler.state.rows import UNSET
from shared.policy.compiled import compiled
from shared.policy.kernels.ranks import nth_greatest
from shared.store.prefetch import AHEAD, prefetch

BELOW_PICKED: Final = 1.0 - 2e-4
"""The guard stays so far below what was picked last."""


_FAR: Final = 0.5
"""Of the guard: who is worth less goes, however far it is from there to what is picked."""


@compiled
def shed_listed(board: Board, keep: int, picked: float, most: int, patience: float) -> int:
    """Raise the guard until no more than `keep` listed pages reach it; what is far below goes.

    Args:
        board: the pages, weighed.
        keep: pages.
        picked: least priority of those picked last; the guard stays a little below.
        most: so many pages go at once at most: each costs an inverse of its crawl value.
        patience: pages that are further below the guard, in distances from there to `picked`, go.
            Others would be back soon: to look at them until then costs less.

    Returns:
        how many went.
    """
    count, dozing = board.state[0].listed, board.state[0].dozing
    guard = board.state[0].guard
    if count > keep:
        priorities = np.empty(count)
        for place in range(count):
            priorities[place] = board.listed[place].priority
        least = nth_greatest(priorities, keep)
        guard = max(guard, min(least, picked * BELOW_PICKED))
    board.state[0].guard = board.state[0].certain_from = guard
    leaving = max(guard - patience * max(picked - guard, 0.0), _FAR * guard)
    kept = gone = asleep = 0
    for place in range(count):
        if place + AHEAD < count and board.listed[place + AHEAD].priority < leaving:
            prefetch(board.pages, board.listed[place + AHEAD].row)
        entry = board.listed[place]
        row = entry.row
        if gone < most and 0.0 < entry.priority < leaving and is_own(board.pages, entry):
            board.pages[row].due_staleness = UNSET
            if put_off(board.wheel, board.pages, row, time_due(board, row)):
                gone += 1
                continue
        if kept < place:
            board.listed[kept] = board.listed[place]
        kept += 1
        asleep += place < dozing
    board.state[0].listed, board.state[0].dozing = kept, asleep
    return gone


@compiled
def raise_guard(board: Board, guard: float, is_certain: bool, first: int, count: int) -> None:
    """Raise the guard, and put off those of some listed pages that do not reach it.

    Unlike `shed_listed` this needs nobody to have weighed the pages. Those that are not in the
    slice stay listed, which is never wrong.

    Args:
        board: the pages.
        guard: the new guard; a lower one than the present changes nothing.
        is_certain: whether pages in the calendar are all worth less than the present guard.
        first: place in `listed` at which the slice begins; it goes on from the beginning.
        count: its places.
    """
    state, listed = board.state[0], board.listed
    state.guard = max(state.guard, guard)
    if is_certain:
        state.certain_from = state.guard
    for place in range(first, first + min(count, state.listed)):
        entry = listed[place % state.listed]
        row = entry.row
        # What was worth more when it was looked at still is.
        if row == LEFT or entry.priority > state.guard or not is_own(board.pages, entry):
            continue
        board.pages[row].due_staleness = UNSET
        if put_off(board.wheel, board.pages, row, time_due(board, row)):
            entry.row, entry.priority = LEFT, 0.0
