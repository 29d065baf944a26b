"""Dropping what crawls found long ago, beside the work; what was learned of it stays. And that
pages were erased, once no topic has anything about them any more. And room for what crawls find."""

import asyncio
import contextlib
from typing import Final

import psycopg
import structlog

from services.estimator import metrics
from services.estimator.passing import reason
from shared.runtime.clock import Clock
from shared.runtime.settings import Settings
from shared.store.erasing import KEPT_SECONDS, drop_old_erasures
from shared.store.retention import drop_old_observations, make_room
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 10.0
"""One partition goes at a time, so that nobody waits long; soon again if there may be more."""


class Retention:
    """Looks once an hour, with a connection of its own; one estimator at a time does."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._database_url = settings.database_url.get_secret_value()
        self._clock = clock
        self._kept_seconds = settings.observations_kept_days * SECONDS_PER_DAY

    async def run(self, stopping: asyncio.Event) -> None:
        """Drop until `stopping` is set; a failure is for the next time."""
        pause = AGAIN_SECONDS
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause)
                return
            pause = AGAIN_SECONDS if await self.turn() else EVERY_SECONDS

    async def turn(self) -> bool:
        """Drop some of what is too old; whether there may be more."""
        await self._make_room()
        before = self._clock.now() - self._kept_seconds
        try:
            dropped = await asyncio.to_thread(drop_old_observations, self._database_url, before)
            forgotten = await asyncio.to_thread(
                drop_old_erasures, self._database_url, self._clock.now() - KEPT_SECONDS
            )
        except psycopg.Error as error:
            log.warning("old observations not dropped this time", reason=reason(error))
            return False
        if dropped:
            metrics.DROPPED.inc(dropped)
            log.info("old observations dropped", partitions=dropped)
        return dropped + forgotten > 0

    async def _make_room(self) -> None:
        try:
            await asyncio.to_thread(make_room, self._database_url, self._clock.now())
        except psycopg.Error as error:
            log.warning("no room made for what crawls find", reason=reason(error))
