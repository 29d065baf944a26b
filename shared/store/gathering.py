"""Reading whole tables fast: column by column, in small parts, over several connections at once.

The server gathers each column of a part into one binary array, which numpy reads in place: there
is no Python object for a row. Parts are small so that what they come to stays in caches and is not
asked of the operating system anew: gathered 128 MB at a time, a table takes half as long again in
the server and four times as long in the client.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final, LiteralString

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.connection import READING, connect, exceeds_limit, first_line
from shared.store.reserved import FEW, grown, reserved
from shared.store.row_threads import threads

PART_BYTES: Final = 4 * 1024 * 1024
"""Of table, gathered at once."""

READERS: Final = max(threads(), 2)
"""Connections that read a table at once: while one's answer is unpacked, the server is busy with
the others'. As many as what they read is unpacked by."""

_FEWEST_PARTS: Final = 4
"""Of a table that is worth a second connection."""

_BLOCK_BYTES: Final = 8192
"""Of a block of PostgreSQL's tables, as it is built by default."""

_END: Final = "(4294967295,0)"
"""Beyond the last row of any table."""

_ROLE: Final = "snapshot"


class TooLarge(psycopg.DatabaseError):
    """The server cannot hand over what it has; the text says why. Waiting does not help."""


class Gathered:
    """Bytes of all parts, in the order of their arrival: what a part has is written to its place at
    once, and not joined in the end, which would need all of the memory twice."""

    def __init__(self, expected: int) -> None:
        """Make it empty.

        Args:
            expected: bytes for which addresses are set aside; memory is taken by use.
        """
        self._bytes = reserved(FEW + 1, np.uint8, wanted=max(expected, FEW + 1))
        self._used = 0
        self._lock = Lock()

    def add(self, data: bytes | memoryview) -> int:
        """Add some, in any thread; where they begin."""
        with self._lock:
            begin, end = self._used, self._used + len(data)
            if end > self._bytes.size:
                self._bytes = grown(self._bytes, max(end, 2 * self._bytes.size), used=begin)
            self._bytes[begin:end] = np.frombuffer(data, np.uint8)
            self._used = end
        return begin

    @property
    def everything(self) -> NDArray[np.uint8]:
        """All of them."""
        return self._bytes[: self._used]


class TableReader:
    """Reads the database as it stands at one moment (REPEATABLE READ)."""

    def __init__(
        self,
        database_url: str,
        stack: ExitStack,
        progress: Callable[[], None] = lambda: None,
        readers: int = READERS,
    ) -> None:
        """Connect.

        Args:
            database_url: libpq URL.
            stack: closes the connections.
            progress: called for each part that is read, in any thread; what it raises ends that.
            readers: connections at most.

        Raises:
            psycopg.OperationalError: the server cannot be reached.
        """
        self._database_url = database_url
        self._stack = stack
        self._progress = progress
        self._readers = readers
        self.connection = self._connect()
        """For everything else that is to be of the same moment."""
        self._connections = [self.connection]

    def _connect(self) -> psycopg.Connection:
        connection = self._stack.enter_context(connect(self._database_url, _ROLE, limits=READING))
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        # The system reads ahead of who reads a table from end to end. To have others of the
        # server's processes do it takes a quarter of all that a row costs.
        connection.execute("SET LOCAL effective_io_concurrency = 0")
        return connection

    def gather(
        self,
        table: str,
        gathered: list[str],
        condition: str = "true",
        taken: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple,
    ) -> list[tuple[Any, ...]]:
        """Run an aggregation over each part of a table.

        Parts are runs of its blocks: each is read once, and the whole table as well.

        Args:
            table: its name, trusted.
            gathered: aggregates; the first is NULL where a part has no row.
            condition: which rows.
            taken: what is kept of a part's row, at once.

        Returns:
            a row for each part that has any, in the order of the parts; none where there is no
            such table.
        """
        statement = (
            f"SELECT {', '.join(gathered)} FROM {table} "
            f"WHERE {condition} AND ctid >= %s::tid AND ctid < %s::tid"
        )
        parts = list(self._parts(table))
        if len(parts) >= _FEWEST_PARTS:
            self._connect_more()
        idle: SimpleQueue[psycopg.Connection] = SimpleQueue()
        for connection in self._connections:
            idle.put(connection)

        def read(part: tuple[str, str]) -> tuple[Any, ...] | None:
            connection = idle.get()
            try:
                row = connection.execute(statement, part, binary=True).fetchone()
                return None if row is None or row[0] is None else taken(row)
            finally:
                idle.put(connection)
                self._progress()

        with ThreadPoolExecutor(len(self._connections), "gathering") as pool:
            rows = list(pool.map(read, parts))
        return [row for row in rows if row is not None]

    def bytes_of(self, table: str) -> int | None:
        """How large a table is; None: there is none."""
        size = self.connection.execute(
            "SELECT pg_relation_size(to_regclass(%s))", (table,)
        ).fetchone()
        return None if size is None or size[0] is None else int(size[0])

    def _parts(self, table: str) -> Iterator[tuple[str, str]]:
        """Where each part begins and ends; the size is looked up after the moment was fixed, so no
        row of it lies beyond."""
        size = self.bytes_of(table)
        if size is None:
            return
        blocks = size // _BLOCK_BYTES
        step = max(PART_BYTES // _BLOCK_BYTES, 1)
        for start in range(0, max(blocks, 1), step):
            end = f"({start + step},0)" if start + step < blocks else _END
            yield f"({start},0)", end

    def _connect_more(self) -> None:
        while len(self._connections) < self._readers:
            exported = self.connection.execute("SELECT pg_export_snapshot()").fetchone()
            if exported is None:
                return
            connection = self._connect()
            moment: LiteralString = "SET TRANSACTION SNAPSHOT {}"
            connection.execute(psycopg.sql.SQL(moment).format(exported[0]))
            self._connections.append(connection)


@contextmanager
def reading(
    database_url: str, progress: Callable[[], None] = lambda: None, readers: int = READERS
) -> Iterator[TableReader]:
    """A reader, which is disconnected at the end (see `TableReader`).

    Raises:
        TooLarge: a limit of the server is exceeded.
    """
    try:
        with ExitStack() as stack:
            yield TableReader(database_url, stack, progress, readers)
    except psycopg.OperationalError as error:
        # A limit counts as operational in Python, as if the server were away.
        if exceeds_limit(error):
            raise TooLarge(f"the database cannot be read: {first_line(error)}") from error
        raise
