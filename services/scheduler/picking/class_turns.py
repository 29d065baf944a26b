"""Slots that are kept for classes of pages: whose turn each is, and the best page of a class.

Classes with shares and `EVERYBODY` take turns as reasons do (`turns`): no slot is lost, and nothing
is saved.

A class's own slots go to its most urgent page whose host has a token, in the order in which all
pages go; all others are filled as if there were no classes, with pages of any.

The calendar's guard is that of the best of all pages, which says nothing of a class that is worth
less. So each class has candidates: all of its pages where these are few, else the best of them,
found anew every five seconds, and with them whatever something happened to since then.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import PENNED, Board, list_page
from services.scheduler.picking.class_candidates import best_that_fit
from services.scheduler.picking.filled import EVERYBODY
from services.scheduler.picking.pens import leave_pen
from services.scheduler.picking.priority import priority_of
from services.scheduler.picking.scanning import priorities_at
from services.scheduler.picking.steps import commit
from services.scheduler.picking.turns import Turns
from services.scheduler.picking.wheel import put_off
from services.scheduler.state.hosts import crawlable_from
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled

SPARE_CANDIDATES: Final = 256
"""Of a class, beyond those that its slots need until they are found anew."""

FOUND_ANEW_SECONDS: Final = 5.0
"""Of the wall."""

_MOST_TOUCHED: Final = 100_000
"""Rows; where more are touched while no slot is filled, candidates are found anew."""

_MORE: Final = 1.5
"""So many times the slots that a class has until then are candidates, beside the spare ones."""

LanesOf = Callable[[NDArray[np.int32] | slice], NDArray[np.uint8]]
"""Rows → which class each page is of; `EVERYBODY`: none that has a share."""


@compiled
def _best_place(
    board: Board,
    rows: NDArray[np.int32],
    priorities: NDArray[np.float64],
    now: float,
    time: float,
    least: float,
) -> int:
    """Place of the most urgent page that can be crawled at a time, and is worth `least`; -1: none
    is. What is in flight since it was weighed counts nothing from now on."""
    while True:
        best, found = 0.0, -1
        for place in range(rows.size):
            if priorities[place] <= best or priorities[place] < least:
                continue
            host = board.hosts[board.pages[rows[place]].host]
            if crawlable_from(host, board.groups, time) <= time:
                best, found = priorities[place], place
        if found < 0:
            return found
        page = board.pages[rows[found]]
        if priority_of(page, board.attempts, now, board.terms) == best:
            return found
        priorities[found] = 0.0


@compiled
def _take(board: Board, picks: Rows, slot: int, row: int, priority: float) -> None:
    """Send a page on its way, wherever the calendar has it."""
    pick, state = picks[slot], board.state[0]
    pick.row, pick.priority = row, priority
    if board.pages[row].bucket == PENNED:
        leave_pen(board, row)
    again_at = commit(
        board.pages, board.attempts, board.hosts, board.groups, pick, state.timeout,
        state.first_retry, board.terms,
    )  # fmt: skip
    if not put_off(board.wheel, board.pages, row, again_at):
        list_page(board, row)


class ClassTurns:
    """The turns of a shard's classes, and their candidates."""

    def __init__(self, shares: Sequence[float], speed: float) -> None:
        """Begin.

        Args:
            shares: of the slots, by class; each above 0, and together less than 1.
            speed: clock seconds in a wall second.
        """
        self._shares = shares
        self._turns = Turns([1.0 - sum(shares), *shares])
        self._rows = [np.empty(0, np.int32) for _ in shares]
        self._touched: list[NDArray[np.int32]] = []
        self._count_touched = 0
        self._found_at = -np.inf
        self._every = FOUND_ANEW_SECONDS * speed

    def touch(self, rows: NDArray[np.int32]) -> None:
        """Something happened to these pages."""
        self._touched.append(rows)
        self._count_touched += rows.size
        if self._count_touched > _MOST_TOUCHED:
            self._found_at = -np.inf
            self._forget_touched()

    def _forget_touched(self) -> None:
        self._touched, self._count_touched = [], 0

    def fill(
        self,
        board: Board,
        lanes_of: LanesOf,
        slots: NDArray[np.float64],
        rate: float,
        least: float,
        picks: Rows,
        fill_others: Callable[[NDArray[np.float64], Rows], None],
    ) -> None:
        """Fill slots, one after the other, by the priorities that pages have at the first.

        Args:
            board: over the rows as they are, with room for so many moves.
            lanes_of: the classes of pages.
            slots: times, rising.
            rate: slots per clock second to expect.
            least: priority below which no slot is spent.
            picks: one a slot, to be written.
            fill_others: fills slots that are everybody's.
        """
        now, first, place = float(slots[0]), 0, -1
        self._find(board, lanes_of, now, rate)
        priorities = [
            priorities_at(board.pages, board.attempts, rows, now, board.terms)
            for rows in self._rows
        ]

        def fill_everybodys(end: int) -> None:
            fill_others(slots[first:end], picks[first:end])
            # Were turns spent on empty slots, classes whose pages wait for the same hosts would
            # always be due before everybody.
            self._turns.retake(EVERYBODY, int(np.count_nonzero(picks["row"][first:end] >= 0)))

        self._turns.mark()
        for slot, time in enumerate(slots.tolist()):
            idle = 0
            while (sharer := self._turns.next(idle)) != EVERYBODY:
                if first < slot:
                    fill_everybodys(slot)
                    first = slot
                    self._turns.mark()
                    continue  # It may be another's turn now.
                rows, theirs = self._rows[sharer - 1], priorities[sharer - 1]
                place = int(_best_place(board, rows, theirs, now, time, least))
                if place >= 0:
                    picks["time"][slot], picks["lane"][slot] = time, sharer
                    _take(board, picks, slot, int(rows[place]), float(theirs[place]))
                    first = slot + 1
                    break
                idle |= 1 << sharer
            self._turns.take(sharer)
            if first > slot:
                self._turns.mark()
        if first < slots.size:
            fill_everybodys(slots.size)

    def _find(self, board: Board, lanes_of: LanesOf, now: float, rate: float) -> None:
        """Keep the candidates those that may be best."""
        if now < self._found_at + self._every:
            new = np.unique(np.concatenate([np.empty(0, np.int32), *self._touched]))
            of_new = lanes_of(new)
            for place, rows in enumerate(self._rows):
                same = rows[lanes_of(rows) == place + 1]
                self._rows[place] = np.union1d(same, new[of_new == place + 1])
            self._forget_touched()
            return
        self._found_at = now
        self._forget_touched()
        lanes = lanes_of(slice(None))
        for place, share in enumerate(self._shares):
            rows = np.flatnonzero(lanes == place + 1).astype(np.int32)
            most = SPARE_CANDIDATES + int(_MORE * share * rate * self._every)
            if rows.size > most:
                priorities = priorities_at(board.pages, board.attempts, rows, now, board.terms)
                rows = best_that_fit(board, rows, priorities, most, now, now + self._every)
            self._rows[place] = rows
