"""Recording every decision in the database, without ever waiting for it."""

import asyncio
import contextlib
from collections import deque

import psycopg
import structlog

from services.coordinator import metrics
from shared.contracts.messages import Multipliers
from shared.store.multipliers import append_multipliers

log = structlog.get_logger(__name__)

WAITING = 10_000
"""Decisions that wait for the database at most: three hours of them; older ones are lost."""

_GATHER_SECONDS = 1.0
"""Between two writes, which connect anew."""

_PATIENCE_SECONDS = (1.0, 30.0)
"""Wait after the first failure, and the longest one."""


class DecisionHistory:
    """Writes decisions to `multiplier_history` in the background, and tries again for ever."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._waiting: deque[Multipliers] = deque()
        self._failed = False

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
            await self._write()
            pause = patience if self._failed else _GATHER_SECONDS
            patience = min(patience * 2, longest) if self._failed else shortest
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause)
        if not self._failed:
            await self._write()

    async def _write(self) -> None:
        decisions = tuple(self._waiting)
        if not decisions:
            return
        try:
            await asyncio.to_thread(append_multipliers, self._database_url, decisions)
        except psycopg.Error as error:
            self._failed = True
            log.warning(
                "decisions not recorded yet; the coordination goes on",
                waiting=len(self._waiting),
                reason=str(error).partition("\n")[0],
            )
            return
        self._failed = False
        for decision in decisions:
            # Anything but the head was dropped meanwhile for want of room.
            if self._waiting and self._waiting[0] is decision:
                self._waiting.popleft()
