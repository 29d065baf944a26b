"""Recording every decision in the database, without ever waiting for it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

import psycopg
import structlog

from services.coordinator import metrics
from shared.contracts.messages import Multipliers
from shared.runtime.clock import SECONDS_PER_DAY
from shared.store.connection import connect

log = structlog.get_logger(__name__)

WAITING = 10_000
"""Decisions that wait for the database at most: three hours of them; older ones are lost."""

KEPT_DAYS = 90.0
"""Clock days after which a decision is forgotten."""

_IDLE_SECONDS = 0.5
_PATIENCE_SECONDS = (1.0, 30.0)
"""Wait after the first failure, and the longest one."""

_PRUNE_EVERY = 3600
"""Decisions between two prunings."""

_INSERT = (
    "INSERT INTO multiplier_history "
    "(version, computed_at, effective_at, multiplier, crawls_per_second, cause) "
    "VALUES (%s, %s, %s, %s, %s, %s)"
)


class DecisionHistory:
    """Writes decisions to `multiplier_history` in the background, and tries again for ever."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._waiting: deque[Multipliers] = deque()
        self._connection: psycopg.Connection | None = None
        self._written = 0

    def __len__(self) -> int:
        """Decisions that wait to be written."""
        return len(self._waiting)

    def add(self, decision: Multipliers) -> None:
        """Note a decision; returns at once."""
        self._waiting.append(decision)
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            metrics.HISTORY_LOST.inc()

    async def run(self, stopping: asyncio.Event) -> None:
        """Write what waits until `stopping` is set; what is left then gets one last try."""
        shortest, longest = _PATIENCE_SECONDS
        patience = shortest
        while not stopping.is_set():
            pause = _IDLE_SECONDS
            if self._waiting and not await self._write():
                pause, patience = patience, min(patience * 2, longest)
            else:
                patience = shortest
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause)
        if self._waiting and self._connection is not None:
            await self._write()
        await asyncio.to_thread(self._disconnect)

    async def _write(self) -> bool:
        decisions = tuple(self._waiting)
        try:
            await asyncio.to_thread(self._insert, decisions)
        except psycopg.Error as error:
            log.warning(
                "decisions not recorded yet; the coordination goes on",
                waiting=len(self._waiting),
                reason=str(error).partition("\n")[0],
            )
            await asyncio.to_thread(self._disconnect)
            return False
        for decision in decisions:
            # Anything but the head was dropped meanwhile for want of room.
            if self._waiting and self._waiting[0] is decision:
                self._waiting.popleft()
        return True

    def _insert(self, decisions: Sequence[Multipliers]) -> None:
        if self._connection is None:
            self._connection = connect(self._database_url, "coordinator")
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(
                _INSERT,
                [
                    (
                        d.version,
                        d.computed_at,
                        d.effective_at,
                        d.multiplier,
                        d.crawls_per_second,
                        d.cause,
                    )
                    for d in decisions
                ],
            )
            if self._written // _PRUNE_EVERY != (self._written + len(decisions)) // _PRUNE_EVERY:
                oldest = decisions[-1].computed_at - KEPT_DAYS * SECONDS_PER_DAY
                cursor.execute("DELETE FROM multiplier_history WHERE computed_at < %s", (oldest,))
        self._written += len(decisions)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
