"""When the estimator's effects of an outcome became durable, seen from the database."""

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

import numpy as np
import psycopg
import structlog

from services.world.ledger import Ledger
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.05
"""The latencies are this coarse."""

MAX_WAITING = 1_000_000

_QUERY = (
    "SELECT partition, max(next_offset) FROM stream_positions WHERE topic = %s GROUP BY partition"
)


class AppliedOutcomes:
    """Compares the outcomes on the topic with the positions that stand beside the page state."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.database_url.get_secret_value()
        self._waiting: dict[int, deque[tuple[Sequence[int], Sequence[float]]]] = {}
        """Offsets and times of writing, as they came, by partition."""
        self._count = 0
        self._connection: psycopg.Connection | None = None

    @property
    def waiting(self) -> int:
        """Outcomes that are written but not applied."""
        return self._count

    def written(self, partition: int, offsets: Sequence[int], times: Sequence[float]) -> None:
        """Outcomes stand on the topic."""
        waiting = self._waiting.setdefault(partition, deque())
        waiting.append((offsets, times))
        self._count += len(offsets)
        while self._count > MAX_WAITING and len(waiting) > 1:
            self._count -= len(waiting.popleft()[0])

    async def turn(self, ledger: Ledger) -> None:
        """Look at the database once, and enter what was applied since the last look."""
        if self.waiting:
            try:
                positions = await asyncio.to_thread(self._look)
            except psycopg.OperationalError as error:
                log.warning("the database does not answer", reason=str(error))
                self.close()
                await asyncio.sleep(1.0)
                return
            self._enter(positions, ledger, time.time())
        await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self) -> dict[int, int]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                application_name="freshet-world",
                connect_timeout=5,
            )
        rows = self._connection.execute(_QUERY, (CRAWL_OUTCOMES.name,)).fetchall()
        return dict(rows)

    def _enter(self, positions: dict[int, int], ledger: Ledger, now: float) -> None:
        done: list[float] = []
        for partition, waiting in self._waiting.items():
            position = positions.get(partition, 0)
            while waiting and waiting[0][0][0] < position:
                offsets, times = waiting.popleft()
                count = bisect_left(offsets, position)
                done += times[:count]
                if count < len(offsets):
                    waiting.appendleft((offsets[count:], times[count:]))
        self._count -= len(done)
        ledger.applied(now - np.array(done))
