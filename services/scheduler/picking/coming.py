"""What comes up in the calendar as time passes: pages that may be worth a crawl by now.

A coarse bucket holds what comes up in a hundred seconds: of a hundred million pages a million. So
the next one is looked at from the moment on when the one before it has come up, some entries at
each tick; its pages go to the fine buckets of their own ticks.
"""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, settle_rows
from services.scheduler.picking.wheel import (
    COARSE,
    FINE,
    TICKS_IN_COARSE,
    ripening,
    skip_empty,
    take_bucket,
    take_some,
)
from services.scheduler.state.rows import UNSET
from shared.policy.compiled import compiled


@compiled
def _settle_again(board: Board, rows: NDArray[np.int32]) -> None:
    """Put pages that were in the calendar where they belong."""
    if board.state[0].is_crowded:
        # Their s* is that of a guard long passed: it would list them all.
        for row in rows:
            board.pages[row].due_staleness = UNSET
    settle_rows(board, rows)


@compiled
def _settle_bucket(board: Board, bucket: int) -> None:
    _settle_again(board, take_bucket(board.wheel, board.pages, bucket))


@compiled
def let_come(board: Board, time: float, enough: int) -> None:
    """List what comes up in the calendar until a time, and beyond until enough are at hand."""
    wheel, chains, state = board.wheel, board.wheel.chains, board.state[0]
    dial = wheel.dial[0]
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
        coarse = FINE + (dial.current // TICKS_IN_COARSE) % COARSE
        if dial.current % TICKS_IN_COARSE == 0 and chains[coarse].head != 0:
            _settle_bucket(board, coarse)
        if chains[dial.current % FINE].head != 0:
            _settle_bucket(board, dial.current % FINE)
