"""The tick: which slots have come, and what is asked for with them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.slot_filler import Emission, SlotFiller, lag_of, parted, take_back
from services.scheduler.flow.traces import PageTraces
from services.scheduler.state.shard import Shard
from shared.pacing.slots import KNOWN_AHEAD_SECONDS, SHOWN_WITHIN_SECONDS, SlotTimeline
from shared.runtime.clock import Clock
from shared.runtime.consumer import BatchConsumer
from shared.runtime.settings import Settings
from shared.runtime.slices import seconds_between
from shared.runtime.wall_time import steady

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""Slots that could not be filled for so long (wall) are lost: never a burst to catch up."""

FILLING_SECONDS: Final = 0.5
"""Filling them may take so long more (wall). What then is not with the producer is taken back: the
thread of the shards, or the producer, had something else to do."""

REMEMBERED_SECONDS: Final = 60.0
"""Plans are remembered for so long (wall) while no slots may be filled: a new one may come every
second, and for ever."""

RESTS: Final = 10.0
"""From the beginning of a tick to that of the next, as a multiple of what filling slots took."""

MOST_TICKS: Final = 2.0
"""From one tick to the end of the next at most, in times of what is between two where slots are
filled soon: so long a slot waits for its request. A tick has a price for each shard, whether that
has one slot or ten."""

LEAST_RESTS: Final = 2.0
"""As `RESTS`, at least, while ticks are no further apart than that: half of the time is others'."""

SENT_SECONDS: Final = 1.0
"""So long the broker is waited for where nothing more is to be picked of a shard."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans of the slots, and how far they are known."""

    timeline: SlotTimeline
    known_at: Callable[[], float]
    """Up to when all plans that the broker had are in the timeline; `wall_time.steady`."""
    ahead: Callable[[], float] = lambda: 0.0
    """Wall seconds by which our time may be ahead of the broker's, at most."""

    def unknown_seconds(self) -> float:
        """How much of the past (wall) must wait: plans that are still to come may change it."""
        may_be_filled = KNOWN_AHEAD_SECONDS - SHOWN_WITHIN_SECONDS - self.ahead()
        return max(steady() - self.known_at() - may_be_filled, 0.0)


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
        traces: PageTraces | None = None,
    ) -> None:
        self._tick_seconds = settings.tick_seconds
        self._clock = clock
        self._plans = plans
        self._timeline = plans.timeline
        self._consumer = consumer
        self._handler = handler
        self._filler = SlotFiller(settings, clock, handler.shards, traces)
        self._thread = thread
        self._emitter = emitter
        self._filled_until, self._stepped = clock.read()
        self._ticking = asyncio.Lock()
        self._is_serving = True
        self.progressed_at = time.monotonic()

    async def run(self, stopping: asyncio.Event) -> None:
        """Tick until `stopping` is set.

        Raises:
            KafkaError: requests could not be delivered.
        """
        due = time.monotonic()
        while not stopping.is_set():
            rest = seconds_to_next(self._tick_seconds, self._filler.seconds)
            due = max(due + rest, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            self.progressed_at = time.monotonic()
            if self._follow_group():
                async with self._ticking:
                    await self.tick()
            else:
                self._stand_by()

    def _follow_group(self) -> bool:
        """Whether slots may be filled. That none were for a while is no sign of what shards can."""
        is_serving = self._consumer.settled and self._consumer.is_sure
        if is_serving != self._is_serving:
            self._is_serving = is_serving
            for shard in list(self._handler.shards.values()):
                shard.notes.was_interrupted = True
        return is_serving

    async def is_written_out(self) -> bool:
        """Whether the broker has all that was asked for until now; waits for it for a moment."""
        async with self._ticking:  # What is being picked goes to the producer first.
            pass
        return await self._emitter.is_sent_within(SENT_SECONDS)

    async def hold(self, shard: Shard) -> bool:
        """Pick nothing more of a shard.

        Returns:
            whether the broker has all that was asked for; if not, ask again.
        """
        async with self._ticking:  # What is being picked goes to the producer first.
            await self._thread.run(_hold, shard, True)
        return await self._emitter.is_sent_within(SENT_SECONDS)

    def unsent_since(self) -> float:
        """As `Emitter.unsent_since`."""
        return self._emitter.unsent_since()

    async def go_on(self, shard: Shard) -> None:
        """Pick pages of a shard again."""
        await self._thread.run(_hold, shard, False)

    async def tick(self) -> None:
        """Fill the slots that have come since the last tick."""
        now = self._now()
        shown = now - self._stepped
        until = now - self._clock.span(self._plans.unknown_seconds())
        plan = self._timeline.at(until)
        if plan is None:
            return
        self._forfeit(now - self._clock.span(PATIENCE_SECONDS))
        if until <= self._filled_until:
            return
        limits, until = self._timeline.limits_after(self._filled_until, until)
        times, owners = self._writable(*self._timeline.between(self._filled_until, until))
        self._filled_until = until
        if not times.size:
            return
        with metrics.TICK_SECONDS.time():
            emissions = await self._thread.run_first(self._filler.fill, times, owners, plan, limits)
        earliest = now - self._clock.span(PATIENCE_SECONDS + FILLING_SECONDS)
        await self._send(emissions, lambda: earliest + self._unstepped() - shown)
        if emissions:
            metrics.EMISSION_SECONDS.observe(
                lag_of(emissions, self._clock.now(), self._clock.speed)
            )

    async def _send(self, emissions: list[Emission], earliest: Callable[[], float]) -> None:
        """Hand requests to the producer, and take back those that it must not have any more.

        Args:
            emissions: of the tick.
            earliest: asked for the time (of the clock that the slots are of) whose slots may still
                be sent; each shard's may have to wait for the producer.

        Raises:
            KafkaError: requests could not be delivered.
        """
        for place, emission in enumerate(emissions):
            if not (self._consumer.settled and self._consumer.is_sure):
                # The group moves shards: whoever gets these must not find requests that came late.
                await self._thread.run(_take_all_back, emissions[place:])
                return
            late, in_time = parted(emission, earliest())
            if late is not None:
                await self._give_up(late)
            for left in await self._emitter.send([in_time]):
                await self._give_up(left)

    async def _give_up(self, emission: Emission) -> None:
        metrics.FORFEITED_SLOTS.inc(emission.picks.size)
        await self._thread.run(take_back, emission)

    def _writable(
        self, times: NDArray[np.float64], owners: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The slots whose requests can be written; those of the other shards are given up."""
        stuck = self._emitter.stuck
        if not stuck:
            return times, owners
        for number in stuck & self._handler.shards.keys():
            self._handler.shards[number].notes.was_interrupted = True
        is_lost = np.isin(owners, list(stuck))
        metrics.FORFEITED_SLOTS.inc(int(np.count_nonzero(is_lost)))
        return times[~is_lost], owners[~is_lost]

    def _unstepped(self) -> float:
        """The time, as if the clock had never been set."""
        now, stepped = self._clock.read()
        return now - stepped

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
            for shard in list(self._handler.shards.values()):
                shard.notes.note_step(moved)
        return now

    def _stand_by(self) -> None:
        """No slots may be filled. Plans that come from here on are of the clock as it is now."""
        self._timeline.forget(self._now() - self._clock.span(REMEMBERED_SECONDS))

    def _forfeit(self, earliest: float) -> None:
        """Give up slots that came before a time, and count those whose plans are known."""
        if self._filled_until >= earliest:
            return
        since, ours = self._filled_until, self._consumer.partitions
        lost = sum(self._timeline.allotted(number, since, earliest) for number in ours)
        metrics.FORFEITED_SLOTS.inc(max(lost, 0.0))
        self._filled_until = earliest


def seconds_to_next(tick_seconds: float, filling_seconds: float) -> float:
    """Wall seconds from the beginning of a tick to that of the next.

    Args:
        tick_seconds: where slots are filled soon.
        filling_seconds: that it took to fill the last ones.
    """
    most = MOST_TICKS * tick_seconds
    latest = max(most - filling_seconds, min(LEAST_RESTS * filling_seconds, most))
    return seconds_between(tick_seconds, filling_seconds, latest, RESTS)


def _hold(shard: Shard, is_held: bool) -> None:
    # While it is held its slots are the others'; then what it left empty is forgotten.
    shard.notes.was_interrupted |= shard.is_held and not is_held
    shard.is_held = is_held


def _take_all_back(emissions: list[Emission]) -> None:
    for emission in emissions:
        take_back(emission)
