"""Reports to the coordinator: demand curves, refreshed beside the picking at a small cost."""

import asyncio
import time
from typing import Final

from services.scheduler import metrics
from services.scheduler.demand import Demand, DemandReporter, Sample, demand_of, draw_sample
from services.scheduler.handler import SchedulerHandler, ShardThread
from services.scheduler.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.topics import DEMAND_CURVES
from shared.pacing.slots import SlotTimeline
from shared.runtime.clock import Clock
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

SAMPLED_PAGES: Final = 50_000
"""Pages, in all shards of the process, whose demand is computed."""

RIPE_SECONDS: Final = 10.0
"""Wall seconds of crawling that the ripe pages of a report stand for: of a slow host only so many
are counted as it can take in that time."""

_LEAST_SAMPLED: Final = 500
_DUTY: Final = 0.05
"""Part of a core that keeping demand up to date may take."""

_POLL_SECONDS: Final = 0.1
_MOST_PATIENCE_SECONDS: Final = 30.0
"""Demand is computed anew after so long in any case: blocks and limits come and go."""


class Reporting:
    """Publishes a demand curve for each shard, every `report_seconds`."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        publisher: Publisher,
        thread: ShardThread,
        handler: SchedulerHandler,
        timeline: SlotTimeline,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._publisher = publisher
        self._thread = thread
        self._handler = handler
        self._timeline = timeline
        self._reporters: dict[Shard, DemandReporter] = {}
        self._computed_at: dict[Shard, float] = {}
        self._counted: dict[Shard, tuple[int, int]] = {}

    def _multiplier(self) -> float:
        plan = self._timeline.at(self._clock.now())
        return plan.multiplier if plan is not None else 0.0

    async def run_reports(self, stopping: asyncio.Event) -> None:
        """Publish until `stopping` is set."""
        while not stopping.is_set():
            await asyncio.sleep(self._settings.report_seconds)
            for key, value in await self._thread.run(self._reports):
                await self._publisher.send(DEMAND_CURVES, key, value, partition=0)

    def _reports(self) -> list[tuple[bytes, bytes]]:
        self._follow_shards()
        now, multiplier = self._clock.now(), self._multiplier()
        metrics.MULTIPLIER.set(multiplier)
        metrics.LIMITED_HOSTS.set(
            sum(
                int((shard.host_rows["held_back"][: shard.host_count] > multiplier).sum())
                for shard in self._reporters
            )
        )
        found = []
        for shard, reporter in self._reporters.items():
            self._count_scans(shard)
            report = reporter.report(now, multiplier)
            if report is not None:
                found.append((str(shard.number).encode(), encode(report)))
        return found

    def _count_scans(self, shard: Shard) -> None:
        looks, uncertain = self._counted.get(shard, (0, 0))
        selector = shard.selector
        all_looks = selector.rebuilds + selector.sweeps
        metrics.SCANS.inc(all_looks - looks)
        metrics.UNCERTAIN_PICKS.inc(selector.uncertain_picks - uncertain)
        self._counted[shard] = (all_looks, selector.uncertain_picks)

    def _follow_shards(self) -> None:
        ours = [shard for shard in self._handler.shards.values() if shard.is_caught_up]
        for gone in set(self._reporters) - set(ours):
            del self._reporters[gone]
            self._computed_at.pop(gone, None)
            self._counted.pop(gone, None)
        for shard in ours:
            if shard not in self._reporters:
                self._reporters[shard] = DemandReporter(
                    shard, self._settings.instance, self._clock.span(RIPE_SECONDS)
                )

    async def run_demand(self, stopping: asyncio.Event) -> None:
        """Keep the demand of the shards up to date until `stopping` is set."""
        while not stopping.is_set():
            drawn = await self._thread.run(self._draw_stalest)
            if drawn is None:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            reporter, sample = drawn
            started = time.perf_counter()
            demand = await asyncio.to_thread(demand_of, sample, self._multiplier())
            elapsed = time.perf_counter() - started
            is_first = reporter.demand is None
            await self._thread.run(_set_demand, reporter, demand)
            await asyncio.sleep(0 if is_first else min(elapsed / _DUTY, 5.0))

    def _draw_stalest(self) -> tuple[DemandReporter, Sample] | None:
        self._follow_shards()
        now, multiplier = time.monotonic(), self._multiplier()
        due = [
            shard
            for shard, reporter in self._reporters.items()
            if reporter.is_stale(multiplier)
            or now - self._computed_at.get(shard, -1e9) > _MOST_PATIENCE_SECONDS
        ]
        if not due:
            return None
        shard = min(due, key=lambda s: self._computed_at.get(s, -1e9))
        if now - self._computed_at.get(shard, -1e9) < self._settings.report_seconds:
            return None
        self._computed_at[shard] = now
        most = max(SAMPLED_PAGES // len(self._reporters), _LEAST_SAMPLED)
        return self._reporters[shard], draw_sample(shard, most)


def _set_demand(reporter: DemandReporter, demand: Demand) -> None:
    reporter.set_demand(demand)
