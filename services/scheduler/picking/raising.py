"""Raising the guard to what as many listed pages reach as are needed soon: how often, by what."""

from typing import Final

import numpy as np

from services.scheduler.picking.board import Board
from services.scheduler.picking.board_rows import LEFT
from services.scheduler.picking.scanning import priorities_at
from services.scheduler.picking.shedding import BELOW_PICKED, raise_guard, shed_listed
from services.scheduler.picking.stock import is_hardly_shed, reached_by
from services.scheduler.picking.work_share import Turn

_AGAIN_SECONDS: Final = 0.5
"""Wall seconds until all that is listed is looked through again, where hardly any went back."""

_SAMPLED: Final = 2_048
_SAMPLED_SECONDS: Final = 0.3
"""So many listed pages tell how far to raise the guard, where not all of them are looked at; and
for so many wall seconds: some go back to the calendar by it at each tick."""


class Raising:
    """Of the guard of one shard."""

    def __init__(self, random: np.random.Generator, speed: float) -> None:
        """Sampled pages are drawn by `random`; `speed` clock seconds are a second of the wall."""
        self._random = random
        self._look, self._sampling = Turn(_AGAIN_SECONDS * speed), Turn(_SAMPLED_SECONDS * speed)
        self._reached = 0.0

    def by_list(
        self, board: Board, now: float, keep: int, picked: float, most: int, patience: float
    ) -> None:
        """Raise it by what is listed, which is nearly all looked at (`shed_listed`)."""
        phase, listed = float(board.state[0]["phase"]), int(board.state[0]["listed"])
        if not self._look.has_come(now, phase):
            return
        if is_hardly_shed(shed_listed(board, keep, picked, most, patience), listed):
            self._look.put_off(now, phase)

    def by_sample(
        self, board: Board, now: float, keep: int, picked: float, most: int, *, is_certain: bool
    ) -> None:
        """Raise it by some listed pages, while hardly one is looked at, or while it is lowered.

        Args:
            board: the pages.
            now: clock seconds.
            keep: about so many listed pages are to reach it.
            picked: what was picked at least; the guard stays below.
            most: listed pages that may go back at once.
            is_certain: whether pages in the calendar are all worth less than the present guard.
        """
        phase, listed = float(board.state[0]["phase"]), int(board.state[0]["listed"])
        if self._sampling.has_come(now, phase):
            drawn = board.listed["row"][self._random.integers(0, listed, _SAMPLED)]
            rows = drawn[drawn != LEFT]
            priorities = priorities_at(board.pages, board.attempts, rows, now, board.terms)
            self._reached = reached_by(priorities, drawn.size, listed, keep)
            self._sampling.put_off(now, phase)
        if self._reached > 0.0 and not self._sampling.waits:
            first = int(self._random.integers(0, listed))
            certain_from = picked if is_certain else float(board.state[0]["certain_from"])
            guard = min(self._reached, picked * BELOW_PICKED, certain_from)
            raise_guard(board, guard, is_certain, first, most)
