"""Whether the server asks the disk for rows before it comes to them, where they are read by their
keys.

Who follows an index asks for a row when the one before is there; who makes a bitmap of them first
asks for many at once. Rows that are in memory are had for less processor time the first way, rows
that lie on the disk in less time the second. Which of both most do depends on the server's memory,
and changes: so both are tried, again and again, and timed.
"""

from typing import Final

import psycopg

_READS_AT_ONCE: Final = 64
"""What disks of today take at once."""

_TRIED: Final = 32
"""One of so many reads is made the other way."""

_WEIGHT, _WEIGHT_OF_OTHER = 1 / 8, 1 / 2
"""Of the last read, in what those of its way take; the other way has few."""


class ReadAhead:
    """What rows take that are read either way."""

    def __init__(self) -> None:
        self._seconds_a_row: dict[bool, float] = {}
        self._reads = 0

    @property
    def is_better(self) -> bool:
        """Whether it is better to ask for rows ahead, as far as is known."""
        known = self._seconds_a_row
        return known.get(True, 0.0) < known[False] if known else False

    def choose(self) -> bool:
        """Whether the next ones are asked for ahead."""
        self._reads += 1
        return self.is_better != (self._reads % _TRIED == 0)

    def note(self, rows: int, seconds: float, *, is_ahead: bool) -> None:
        """So many rows (at least one) were read in so many seconds."""
        weight = _WEIGHT if is_ahead == self.is_better else _WEIGHT_OF_OTHER
        now = seconds / rows
        known = self._seconds_a_row.get(is_ahead, now)
        self._seconds_a_row[is_ahead] = known + weight * (now - known)


def allow_reading_ahead(connection: psycopg.Connection) -> None:
    """Let a session ask the disk for many rows at once, if the server's system can.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    try:
        with connection.transaction():
            connection.execute(f"SET effective_io_concurrency = {_READS_AT_ONCE}")
    except psycopg.errors.InvalidParameterValue:
        pass  # it cannot: then reading ahead is no faster, which is seen


def read_ahead(connection: psycopg.Connection, *, is_ahead: bool) -> None:
    """Let the plans of a session be such that rows are asked for ahead, or not.

    A statement has a text of its own for each: the server keeps their plans.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    with connection.transaction():
        connection.execute(f"SET enable_indexscan = {'off' if is_ahead else 'on'}")
