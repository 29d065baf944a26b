"""Where each stream stands, in PostgreSQL."""

import asyncio

import psycopg
import structlog

from shared.store.connection import connect
from shared.store.stream_cursors import read_cursor, write_cursor

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 1.0


class Cursors:
    """Places by source. A connection for each question: there is one a second at most."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    async def load(self, source: str) -> str:
        """Where a stream stands; empty: it was never read. Waits for the database."""
        while True:
            try:
                return await asyncio.to_thread(self._load, source)
            except psycopg.Error as error:
                log.warning("a stream waits for the database", error=str(error).strip())
            await asyncio.sleep(AGAIN_SECONDS)

    async def store(self, source: str, cursor: str) -> bool:
        """Write it down; whether the database took it. Else it is tried again later."""
        try:
            await asyncio.to_thread(self._store, source, cursor)
        except psycopg.Error as error:
            log.warning("where a stream stands is not stored", error=str(error).strip())
            return False
        return True

    def _load(self, source: str) -> str:
        with connect(self._database_url, "poller", autocommit=True) as connection:
            return read_cursor(connection, source)

    def _store(self, source: str, cursor: str) -> None:
        with connect(self._database_url, "poller", autocommit=True) as connection:
            write_cursor(connection, source, cursor)
