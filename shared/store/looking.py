"""Asking the database something again and again, beside other work."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import psycopg

from shared.store.connection import PASSING, connect
from shared.store.deployment import StoreMismatch
from shared.store.questions import take_turns
from shared.store.rights import NotGranted, why_not

_PASSING: Final = (*PASSING, StoreMismatch, psycopg.errors.UndefinedTable, NotGranted)
"""Also a database without tables, which is being restored, or without a right: whoever asks has its
shards in memory, and those of other databases."""


class Looking:
    """A connection of its own; a database that is away is asked again."""

    def __init__(self, database_url: str, what: str, role: str | None = None) -> None:
        """Make it, not connected yet.

        Args:
            database_url: libpq URL.
            what: is asked for; names the connection, and says in the log what is not known.
            role: of `shared.store.roles`, that has the rights; None: not said.
        """
        self._database_url = database_url
        self._what = what
        self._role = role
        self._connection: psycopg.Connection | None = None

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

        async def ask() -> None:
            try:
                await turn()
            except psycopg.errors.InsufficientPrivilege as error:
                raise why_not(error, self._role) from error
            except _PASSING:
                await asyncio.to_thread(self._disconnect)
                raise

        waiting = f"the database cannot be asked: {self._what}"
        try:
            await take_turns(ask, every_seconds, waiting, stopping=stopping, passing=_PASSING)
        finally:
            await asyncio.to_thread(self._disconnect)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
