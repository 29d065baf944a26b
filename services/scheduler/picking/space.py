"""The shard of a calendar, and the calendar's board over its rows."""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board
from services.scheduler.picking.board_rows import UPPER_TIERS
from services.scheduler.picking.lines import drop_stale
from services.scheduler.picking.urgent_heaps import column_with_room, heaps_with_room
from services.scheduler.picking.wheel import has_room, with_room
from services.scheduler.state.attempts import Attempts
from services.scheduler.state.groups import HostGroups
from services.scheduler.state.hosts import Hosts
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled

_FEW_WAIT: Final = 4096
_MANY: Final = 8
"""Entries for each host and line, most of them of before, that are worth a look at all of them."""

_NO_PAGES: Final = 2
"""Items of pens beside one for each page."""


class Space(Protocol):
    """Where the pages and hosts of a shard are; the arrays may be replaced when they grow."""

    hosts: Hosts
    pages: Rows
    records: Rows
    attempts: Attempts
    groups: HostGroups

    def lanes_of(self, rows: NDArray[np.int32] | slice) -> NDArray[np.uint8]:
        """Which of the classes with shares pages are of, by their rows; 0: none."""
        ...

    @property
    def used(self) -> int:
        """Rows from here on have never been used."""
        ...

    @property
    def host_rows(self) -> Rows:
        """Rows of the hosts; the same array as long as there are no more."""
        ...

    @property
    def group_rows(self) -> Rows:
        """Rows of the groups of hosts; another array where they are others."""
        ...

    @property
    def host_count(self) -> int:
        """How many hosts there are."""
        ...


def is_attached(board: Board, space: Space) -> bool:
    """Whether the board is over the rows as they are now."""
    return (
        board.pages is space.pages
        and board.records is space.records
        and board.attempts is space.attempts.rows
        and board.hosts is space.host_rows
        and board.groups is space.group_rows
        and board.lines is space.groups.lines
        and board.terms.objectives is space.hosts.objectives
    )


@compiled
def _room_for(state: Rows, used: int, moves: int, hosts: int, lines: int) -> tuple[int, int, int]:
    """Entries that the list, a heap of urgent pages, and the heap of those that wait must have room
    for.

    Args:
        state: of the board.
        used: rows of pages that are used.
        moves: that are to come.
        hosts: how many there are.
        lines: how many there are.
    """
    listed, urgent, parked = state[0].listed, state[0].urgent, state[0].parked
    return (
        listed + 2 * used + moves,
        urgent + listed + used + 1,
        parked + 4 * (hosts + lines) + moves + 1,
    )


@compiled
def _has_stale(state: Rows, hosts: int, lines: int) -> bool:
    """Whether so many entries wait that most of them are of before."""
    return bool(state[0].parked > _FEW_WAIT + _MANY * (hosts + lines))


@compiled
def is_ready(board: Board, used: int, moves: int) -> bool:
    """Whether a board that is over the rows as they are has room for so many more moves, and
    nothing is to be seen to before (`attached`)."""
    hosts, lines = board.hosts.size, board.lines.size
    lists, urgent, parked = _room_for(board.state, used, moves, hosts, lines)
    heaps = UPPER_TIERS if board.terms.in_turns else 1
    return bool(
        lists <= board.listed.size
        and heaps * urgent <= board.urgent.size
        and parked <= board.parked.size
        and used + _NO_PAGES <= board.pen_rows.size
        and has_room(board.wheel, used + moves)
        and not _has_stale(board.state, hosts, lines)
    )


def attached(board: Board, space: Space, moves: int) -> Board:
    """The board over the rows as they are now, with room for so many more moves. Memory is taken
    when used."""
    state, in_turns = board.state, board.terms.in_turns
    used, hosts, lines = space.used, space.host_rows, space.groups.lines
    lists, urgent, parked = _room_for(state, used, moves, hosts.size, lines.size)
    listed, waiting, items = state[["listed", "parked", "next_item"]].tolist()[0]
    state["used"] = used
    board = Board(
        pages=space.pages,
        records=space.records,
        attempts=space.attempts.rows,
        hosts=hosts,
        groups=space.group_rows,
        lines=lines,
        wheel=with_room(board.wheel, used + moves, 6 * used),
        listed=column_with_room(board.listed, lists, listed),
        urgent=heaps_with_room(board.urgent, urgent, state[0], in_turns=in_turns),
        urgent_keys=heaps_with_room(board.urgent_keys, urgent, state[0], in_turns=in_turns),
        parked=column_with_room(board.parked, parked, waiting),
        parked_keys=column_with_room(board.parked_keys, parked, waiting),
        pen_rows=column_with_room(board.pen_rows, used + _NO_PAGES, items),
        pen_priorities=column_with_room(board.pen_priorities, used + _NO_PAGES, items),
        pen_next=column_with_room(board.pen_next, used + _NO_PAGES, items),
        state=state,
        terms=board.terms._replace(objectives=space.hosts.objectives),
    )
    if _has_stale(state, hosts.size, lines.size):
        drop_stale(board)
    return board
