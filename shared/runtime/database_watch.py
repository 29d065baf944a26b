"""Whether a database answers: asked for every few seconds, past those who use it.

They try again for ever by themselves; and of a server that hangs they only know that it is slow.
"""

import asyncio
import contextlib
import time
from typing import Final

import psycopg
import structlog

from shared.runtime import metrics
from shared.runtime.databases import held_by
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
"""A database that takes longer is away."""

CONNECT_SECONDS: Final = 2
"""Of several servers each gets so long: of two one may be silent, and the other one answers."""


class DatabaseWatch:
    """One small connection of its own."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._database_url = settings.database_url.get_secret_value()
        self._held = held_by(settings) or "all"
        self._name = f"freshet-{worker}-watch"
        self._connection: psycopg.AsyncConnection | None = None
        self._away_since: float | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Ask until `stopping` is set."""
        try:
            while not stopping.is_set():
                self._note(await self._failure())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), ASK_SECONDS)
        finally:
            await self._disconnect()

    async def _failure(self) -> str | None:
        """What an answer failed with; None: there was one."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._connection is None:
                    self._connection = await psycopg.AsyncConnection.connect(
                        self._database_url,
                        autocommit=True,
                        application_name=self._name,
                        connect_timeout=CONNECT_SECONDS,
                    )
                await self._connection.execute("SELECT 1")
        except TimeoutError:
            await self._disconnect()
            return f"no answer for {ANSWER_SECONDS:g} s"
        except (psycopg.Error, OSError) as error:
            await self._disconnect()
            return str(error).strip()
        return None

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _note(self, failure: str | None) -> None:
        if failure is not None and self._away_since is None:
            self._away_since = time.monotonic()
            metrics.DATABASE_AWAY.inc()
            log.warning("the database does not answer", error=failure, shards=self._held)
        elif failure is None and self._away_since is not None:
            seconds = time.monotonic() - self._away_since
            self._away_since = None
            metrics.DATABASE_AWAY.dec()
            log.info("the database answers again", seconds_away=round(seconds), shards=self._held)
