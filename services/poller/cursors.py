"""Where each stream stands, and what came of it, in PostgreSQL."""

import asyncio

import psycopg
import structlog

from shared.store.questions import Questions
from shared.store.stream_cursors import StreamNews, read_cursor, write_streams

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 1.0


class Cursors:
    """Places by source. A connection for each question: there is one a second at most."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def load(self, source: str) -> str:
        """Where a stream stands; empty: it was never read. Waits for the database."""
        while True:
            try:
                return await self._questions.ask(read_cursor, source)
            except psycopg.Error as error:
                log.warning("a stream waits for the database", error=str(error).strip())
            await asyncio.sleep(AGAIN_SECONDS)

    async def store(self, cursor: str, own: StreamNews, *others: StreamNews) -> bool:
        """Write it down; whether the database took it. Else it is tried again later."""
        try:
            await self._questions.ask(write_streams, cursor, own, *others)
        except psycopg.Error as error:
            log.warning("where a stream stands is not stored", error=str(error).strip())
            return False
        return True
