"""Entries of the heaps of urgent pages that count no more, and go where they are many.

A page of an upper tier has an entry for each time that it was weighed, as its tier or importance
may have been others before. Those of before are dropped when they come up; but below what waits for
weeks they never do, and updates of the same pages go on.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import URGENT, Board, add_urgent, settle
from services.scheduler.picking.priority import HIGHEST_VALUE, priority_of
from services.scheduler.picking.urgent_heaps import rows_in
from shared.policy.compiled import compiled

_TIMES: Final = 2
_SPARE: Final = 50_000
"""Where there are so many times the entries that were left last, and so many more, it pays to look
at all of them."""


def is_untidy(board: Board) -> bool:
    """Whether it pays to look at all entries."""
    state = board.state[0]
    return bool(state["urgent"] > _TIMES * state["urgent_left"] + _SPARE)


def keep_own_entries(board: Board, now: float) -> None:
    """Drop all entries that count no more.

    Args:
        board: of the pages, with room for a move of each.
        now: clock seconds.
    """
    state = board.state[0]
    rows = rows_in(board.urgent, state, in_turns=board.terms.in_turns)
    _keep_own(board, rows.copy(), now)
    state["urgent_left"] = state["urgent"]


@compiled
def _keep_own(board: Board, rows: NDArray[np.int32], now: float) -> None:
    """Give each urgent page one entry, by what it is now."""
    state = board.state[0]
    state.urgent = 0
    state.urgent_by_tier[:] = 0
    is_placed = np.zeros(state.used, np.bool_)
    for row in rows:
        page = board.pages[row]
        if page.bucket != URGENT or is_placed[row]:
            continue
        is_placed[row] = True
        priority = priority_of(page, board.attempts, now, board.terms)
        if priority > HIGHEST_VALUE:
            add_urgent(board, row, priority)
        else:
            settle(board, row)
