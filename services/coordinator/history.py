"""Recording every decision in the database, without ever waiting for it."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

import psycopg
import structlog

from services.coordinator import metrics
from shared.store.multipliers import (
    PRUNED_AT_ONCE,
    Decided,
    Row,
    append_multipliers,
    prune_multipliers,
    row_of,
)
from shared.store.rights import COORDINATOR, reason_why_not

log = structlog.get_logger(__name__)

WAITING = 10_000
"""Decisions that wait for the database at most: three hours of them; older ones are lost."""

_GATHER_SECONDS = 1.0
"""Between two writes, which connect anew."""

_PATIENCE_SECONDS = (1.0, 30.0)
"""Wait after the first failure, and the longest one."""


PRUNE_SECONDS = 60.0
"""Between two looks for decisions that are too old to be kept."""


class DecisionHistory:
    """Writes decisions to `multiplier_history` in the background, and tries again for ever."""

    def __init__(self, database_url: str, oldest: Callable[[], float] | None = None) -> None:
        """Record nothing yet.

        Args:
            database_url: libpq URL.
            oldest: clock time, Unix seconds, of the oldest decisions to be kept now; absent: all
                are. Only where something is recorded, which is at the leader, old ones are dropped.
        """
        self._database_url = database_url
        self._waiting: deque[Row] = deque()
        self._failed = False
        self._oldest = oldest
        self._pruned_at = float("-inf")

    def __len__(self) -> int:
        """Decisions that wait to be written."""
        return len(self._waiting)

    def add(self, decision: Decided) -> None:
        """Note a decision; returns at once."""
        self._waiting.append(row_of(decision))
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
                reason=reason_why_not(error, COORDINATOR),
            )
            return
        self._failed = False
        for decision in decisions:
            # Anything but the head was dropped meanwhile for want of room.
            if self._waiting and self._waiting[0] is decision:
                self._waiting.popleft()
        await self._prune()

    async def _prune(self) -> None:
        now = time.monotonic()
        if self._oldest is None or now - self._pruned_at < PRUNE_SECONDS:
            return
        try:
            gone = await asyncio.to_thread(prune_multipliers, self._database_url, self._oldest())
        except psycopg.Error as error:
            log.warning("old decisions stay", reason=reason_why_not(error, COORDINATOR))
        else:
            if gone == PRUNED_AT_ONCE:
                return  # There are more: go on with the next write.
        self._pruned_at = now
