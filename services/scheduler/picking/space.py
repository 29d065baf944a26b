"""The shard of a calendar, and the calendar's board over its rows."""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, attach
from services.scheduler.picking.lines import drop_stale
from services.scheduler.state.attempts import Attempts
from services.scheduler.state.groups import HostGroups
from services.scheduler.state.hosts import Hosts
from services.scheduler.state.rows import Rows

_FEW_WAIT: Final = 4096
_MANY: Final = 8
"""Entries for each host and line, most of them of before, that are worth a look at all of them."""


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


def attached(board: Board, space: Space, touched: int) -> Board:
    """The board over the rows as they are now, with room for so many more moves."""
    terms = board.terms._replace(objectives=space.hosts.objectives)
    board = board._replace(groups=space.group_rows, lines=space.groups.lines, terms=terms)
    attempts, hosts = space.attempts.rows, space.host_rows
    board = attach(board, space.pages, space.records, attempts, hosts, space.used, touched)
    if board.state[0]["parked"] > _FEW_WAIT + _MANY * (hosts.size + board.lines.size):
        drop_stale(board)
    return board
