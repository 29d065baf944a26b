"""The shard of a calendar, and the calendar's board over its rows."""

from typing import Protocol

from services.scheduler.picking.board import Board, attach
from services.scheduler.state.attempts import Attempts
from services.scheduler.state.hosts import Hosts
from services.scheduler.state.rows import Rows


class Space(Protocol):
    """Where the pages and hosts of a shard are; the arrays may be replaced when they grow."""

    hosts: Hosts
    pages: Rows
    records: Rows
    attempts: Attempts

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
        and board.terms.objectives is space.hosts.objectives
    )


def attached(board: Board, space: Space, touched: int) -> Board:
    """The board over the rows as they are now, with room for so many more moves."""
    terms = board.terms._replace(objectives=space.hosts.objectives)
    board = board._replace(groups=space.group_rows, terms=terms)
    attempts, hosts = space.attempts.rows, space.host_rows
    return attach(board, space.pages, space.records, attempts, hosts, space.used, touched)
