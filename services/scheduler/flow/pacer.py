"""The tick: which slots have come, and what is asked for with them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from services.scheduler import metrics
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.slot_filler import Emission, SlotFiller, lag_of, take_back
from shared.pacing.slots import KNOWN_AHEAD_SECONDS, SlotTimeline
from shared.runtime.clock import Clock
from shared.runtime.consumer import BatchConsumer
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""Slots that could not be filled for so long (wall) are lost: never a burst to catch up."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans of the slots, and how far they are known."""

    timeline: SlotTimeline
    known_at: Callable[[], float]
    """Monotonic time up to which all plans that the broker had are in the timeline."""

    def unknown_seconds(self) -> float:
        """How much of the past (wall) must wait: plans that are still to come may change it."""
        return max(time.monotonic() - self.known_at() - KNOWN_AHEAD_SECONDS, 0.0)


class Pacer:
    """Fills slots as they come, while the group is settled."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        plans: Plans,
        consumer: BatchConsumer,
        handler: SchedulerHandler,
        thread: ShardThread,
        emitter: Emitter,
    ) -> None:
        self._tick_seconds = settings.tick_seconds
        self._clock = clock
        self._plans = plans
        self._timeline = plans.timeline
        self._consumer = consumer
        self._handler = handler
        self._filler = SlotFiller(settings, handler.shards)
        self._thread = thread
        self._emitter = emitter
        self._filled_until, self._stepped = clock.read()
        self.progressed_at = time.monotonic()

    async def run(self, stopping: asyncio.Event) -> None:
        """Tick until `stopping` is set.

        Raises:
            KafkaError: requests could not be delivered.
        """
        due = time.monotonic()
        while not stopping.is_set():
            due = max(due + self._tick_seconds, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            self.progressed_at = time.monotonic()
            if self._consumer.settled and self._consumer.is_sure:
                await self.tick()
            else:
                self._now()  # Plans that come from here on are of the clock as it is now.

    async def tick(self) -> None:
        """Fill the slots that have come since the last tick."""
        now = self._now()
        until = now - self._clock.span(self._plans.unknown_seconds())
        plan = self._timeline.at(until)
        if plan is None:
            return
        self._forfeit(now - self._clock.span(PATIENCE_SECONDS))
        if until <= self._filled_until:
            return
        times, owners = self._timeline.between(self._filled_until, until)
        self._filled_until = until
        if not times.size:
            return
        with metrics.TICK_SECONDS.time():
            emissions = await self._thread.run(self._filler.fill, times, owners, plan)
        if not (self._consumer.settled and self._consumer.is_sure):
            # The group moves shards: whoever gets these must not find requests that came late.
            await self._thread.run(_take_all_back, emissions)
            return
        await self._emitter.send(emissions)
        if emissions:
            metrics.EMISSION_SECONDS.observe(
                lag_of(emissions, self._clock.now(), self._clock.speed)
            )

    def _now(self) -> float:
        """The time. Where the clock was set, slots go on: none is lost, and none comes twice.

        As many pass in a second of the wall as ever; only their times are other ones.
        """
        now, stepped = self._clock.read()
        moved = stepped - self._stepped
        if moved:
            log.warning("the clock was set: slots go on where they were", by_seconds=moved)
            self._timeline.shift(moved)
            self._filled_until += moved
            self._stepped = stepped
        return now

    def _forfeit(self, earliest: float) -> None:
        """Give up slots that came before a time."""
        if self._filled_until >= earliest:
            return
        passed = self._timeline.passed(earliest) - self._timeline.passed(self._filled_until)
        plan = self._timeline.at(earliest)
        share = sum(plan.share_of(n) for n in self._consumer.partitions) if plan else 0.0
        metrics.FORFEITED_SLOTS.inc(max(passed, 0.0) * share)
        self._filled_until = earliest


def _take_all_back(emissions: list[Emission]) -> None:
    for emission in emissions:
        take_back(emission)
