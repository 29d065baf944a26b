"""Asking the database something again and again, beside other work."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import psycopg
import structlog

from shared.store.connection import PASSING, connect

log = structlog.get_logger(__name__)


class Looking:
    """A connection of its own; a database that is away is asked again."""

    def __init__(self, database_url: str, what: str) -> None:
        """Make it, not connected yet.

        Args:
            database_url: libpq URL.
            what: is asked for; names the connection, and says in the log what is not known.
        """
        self._database_url = database_url
        self._what = what
        self._connection: psycopg.Connection | None = None
        self._is_away = False

    @property
    def connection(self) -> psycopg.Connection:
        """A connection that works, as far as is known; in autocommit.

        Raises:
            psycopg.OperationalError: the server cannot be reached.
        """
        if self._connection is None or self._connection.broken:
            self._connection = connect(self._database_url, self._what, autocommit=True)
        return self._connection

    async def run(
        self, turn: Callable[[], Awaitable[None]], every_seconds: float, stopping: asyncio.Event
    ) -> None:
        """Take turns until `stopping` is set."""
        try:
            while not stopping.is_set():
                await self._take(turn)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), every_seconds)
        finally:
            await asyncio.to_thread(self._disconnect)

    async def _take(self, turn: Callable[[], Awaitable[None]]) -> None:
        try:
            await turn()
            self._is_away = False
        except PASSING as error:
            if not self._is_away:
                reason = str(error).partition("\n")[0]
                log.warning("the database cannot be asked", what=self._what, reason=reason)
            self._is_away = True
            await asyncio.to_thread(self._disconnect)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
