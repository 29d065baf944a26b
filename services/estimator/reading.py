"""The connections over which pages are read, several shards' at once.

Rows that lie on the disk are waited for: meanwhile those of other shards are asked for. Where all
are in the server's memory it makes little difference.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import LifoQueue
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.connection import connect_writer, server_of
from shared.store.learned_pages import LearnedPages, pages_of_host, read_pages
from shared.store.owners import Owner
from shared.store.read_ahead import ReadAhead, allow_reading_ahead, read_ahead

READERS: Final = 3
"""More make nothing faster that was measured, and each is a connection."""


class _Reader:
    """A connection, and how its session reads now."""

    def __init__(self, database_url: str) -> None:
        self.connection = connect_writer(database_url, "estimator-reader")
        self._is_ahead = False

    def read_ahead(self, *, is_ahead: bool) -> None:
        """Read so from now on."""
        if is_ahead != self._is_ahead:
            read_ahead(self.connection, is_ahead=is_ahead)
            self._is_ahead = is_ahead


class PageReaders:
    """Connections that read pages; for several threads at once, but for opening and closing."""

    def __init__(self, database_url: str) -> None:
        """Make them, not connected yet.

        Args:
            database_url: libpq URL.
        """
        self._database_url = database_url
        self._readers: list[_Reader] = []
        self._idle: LifoQueue[_Reader] = LifoQueue()
        self._ahead, self._choosing = ReadAhead(), threading.Lock()

    def open(self, writing: psycopg.Connection) -> None:
        """Connect; they were closed.

        Args:
            writing: of what is to be read all that it commits.

        Raises:
            psycopg.OperationalError: the server cannot be reached, or is another one than that of
                `writing`.
        """
        self._idle, self._ahead = LifoQueue(), ReadAhead()
        for _ in range(READERS):
            reader = _Reader(self._database_url)
            self._readers.append(reader)
            _require_one_server(writing, reader.connection)
            allow_reading_ahead(reader.connection)
            self._idle.put(reader)

    @property
    def are_open(self) -> bool:
        """Whether all of them work, as far as is known."""
        return bool(self._readers) and not any(one.connection.broken for one in self._readers)

    def close(self) -> None:
        """Disconnect."""
        for reader in self._readers:
            reader.connection.close()
        self._readers = []

    def read_pages(
        self,
        shard: int,
        owner: Owner,
        page_ids: NDArray[np.int64],
        directories: NDArray[np.uint16] | None = None,
    ) -> LearnedPages:
        """As `shared.store.learned_pages`, the way that is seen to take less time."""
        with self._reading() as reader:
            with self._choosing:
                is_ahead = self._ahead.choose()
            reader.read_ahead(is_ahead=is_ahead)
            given = shard, owner, page_ids, directories
            began_at = time.monotonic()
            pages = read_pages(reader.connection, *given, is_ahead=is_ahead)
            spent = time.monotonic() - began_at
            with self._choosing:
                self._ahead.note(page_ids.size, spent, is_ahead=is_ahead)
            return pages

    def pages_of_host(self, shard: int, owner: Owner, host_id: int) -> NDArray[np.int64]:
        """As `shared.store.learned_pages`."""
        with self._reading() as reader:
            return pages_of_host(reader.connection, shard, owner, host_id)

    @contextmanager
    def _reading(self) -> Iterator[_Reader]:
        """One that nobody else uses meanwhile; waits for it."""
        if not self._readers:
            raise psycopg.OperationalError("not connected")
        idle = self._idle
        reader = idle.get()
        try:
            yield reader
        finally:
            idle.put(reader)


def _require_one_server(writing: psycopg.Connection, reader: psycopg.Connection) -> None:
    """What is read is to have all that is committed: an address may lead to two servers."""
    if server_of(writing) != server_of(reader):
        raise psycopg.OperationalError("the database has moved to another server; connecting again")
