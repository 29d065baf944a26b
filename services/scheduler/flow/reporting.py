"""Reports to the coordinator: demand curves, refreshed beside the picking at a small cost."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from services.scheduler import metrics
from services.scheduler.demand.class_reports import label_of
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import Demand, Tally, estimated_demand
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.topics import DEMAND_CURVES
from shared.pacing.slots import SlotTimeline
from shared.runtime.clock import Clock
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

RIPE_SECONDS: Final = 10.0
"""Wall seconds of crawling that the ripe pages of a report stand for: of a slow host only so many
are counted as it can take in that time."""

_DUTY: Final = 0.07
"""Part of a core that keeping demand up to date may take."""

_FIRST_DUTY: Final = 1.0
"""The same before the demand of a shard is more than an estimate."""

_ESTIMATED_AT_ONCE: Final = 8
"""Shards: ticks wait for so long, ten or twenty milliseconds each."""

_LONGEST_PAUSE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1
_MOST_PATIENCE_SECONDS: Final = 20.0
"""After so long demand is computed anew even if few pages have changed."""


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
        self._passed: dict[Shard, Demand] = {}
        self._counted: dict[Shard, tuple[int, int]] = {}

    def _multiplier(self) -> float:
        plan = self._timeline.at(self._clock.now())
        return plan.multiplier if plan is not None else 0.0

    async def run_reports(self, stopping: asyncio.Event) -> None:
        """Publish until `stopping` is set."""
        while not stopping.is_set():
            await asyncio.sleep(self._settings.report_seconds)
            await self._publish(await self._thread.run(self._reports))

    async def _publish(self, reports: list[tuple[bytes, bytes]]) -> None:
        for key, value in reports:
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
        for shard in self._reporters:
            self._count_scans(shard)
        self._count_pages()
        return self._reports_of(self._reporters, now, multiplier)

    def _reports_of(
        self, shards: Iterable[Shard], now: float, multiplier: float
    ) -> list[tuple[bytes, bytes]]:
        """Key and value of each report that can be made."""
        found = []
        for shard in shards:
            reporter = self._reporters.get(shard)
            report = reporter.report(now, multiplier) if reporter is not None else None
            if report is not None:
                found.append((str(shard.number).encode(), encode(report)))
        return found

    def _count_pages(self) -> None:
        """By class, where operators say something of classes."""
        counts: Counter[str] = Counter()
        for shard in self._reporters:
            for name, numbers in shard.classes.named().items():
                counts[name] += int(shard.classes.pages[numbers].sum())
        for name, count in counts.items():
            metrics.CLASS_PAGES.labels(label_of(name)).set(count)

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
            self._passed.pop(gone, None)
            self._counted.pop(gone, None)
        for shard in ours:
            if shard not in self._reporters:
                self._reporters[shard] = DemandReporter(
                    shard, self._settings.instance, self._clock.span(RIPE_SECONDS)
                )

    async def run_demand(self, stopping: asyncio.Event) -> None:
        """Keep the demand of the shards up to date until `stopping` is set."""
        while not stopping.is_set():
            await self._estimate_new_ones()
            begun = await self._thread.run(self._begin_stalest)
            if begun is None:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            await self._compute(*begun, stopping)

    async def _compute(self, shard: Shard, tally: Tally, stopping: asyncio.Event) -> None:
        """One pass over a shard, a slice at a time: ticks go on between the slices."""
        duty = _DUTY if shard in self._computed_at else _FIRST_DUTY
        while not stopping.is_set():
            await self._estimate_new_ones()
            began = time.perf_counter()
            rows = await self._thread.run(self._copy, shard, tally)
            if rows is None:
                break
            turn = min(await asyncio.to_thread(_add, tally, rows) / duty, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(max(began + turn - time.perf_counter(), 0.0))
        else:
            return
        demand = await asyncio.to_thread(tally.finish)
        await self._thread.run(self._take, shard, tally, demand)

    async def _estimate_new_ones(self) -> None:
        """A shard that is new reports at once, by a sample of its pages.

        It gets no budget before it has reported, and a pass over all pages takes a while.
        """
        while reports := await self._thread.run(self._first_reports):
            await self._publish(reports)

    def _first_reports(self) -> list[tuple[bytes, bytes]]:
        """Of some new shards together: each alone would get the others' part at first."""
        self._follow_shards()
        now, multiplier = self._clock.now(), self._multiplier()
        new = [shard for shard, reporter in self._reporters.items() if reporter.demand is None]
        for shard in new[:_ESTIMATED_AT_ONCE]:
            self._reporters[shard].set_demand(estimated_demand(shard, multiplier))
        return self._reports_of(new[:_ESTIMATED_AT_ONCE], now, multiplier)

    def demand_of(self, shard: Shard) -> Demand | None:
        """The demand that a shard reports now; None before it is known."""
        reporter = self._reporters.get(shard)
        return reporter.demand if reporter is not None else None

    def _copy(self, shard: Shard, tally: Tally) -> Rows | None:
        return tally.copy() if shard in self._reporters else None

    def _take(self, shard: Shard, tally: Tally, demand: Demand) -> None:
        reporter = self._reporters.get(shard)
        if reporter is None:
            return
        is_known = shard in self._passed or tally.is_sound(demand)
        self._passed[shard] = demand
        if is_known:
            self._computed_at[shard] = time.monotonic()
            reporter.set_demand(demand)

    def _begin_stalest(self) -> tuple[Shard, Tally] | None:
        self._follow_shards()
        now, multiplier = time.monotonic(), self._multiplier()
        due = [
            shard
            for shard, reporter in self._reporters.items()
            if shard not in self._computed_at
            or self._is_due(reporter, multiplier, now - self._computed_at.get(shard, -1e9))
        ]
        if not due:
            return None
        shard = min(due, key=lambda s: self._computed_at.get(s, -1e9))
        return shard, Tally(shard, multiplier, self._passed.get(shard))

    def _is_due(self, reporter: DemandReporter, multiplier: float, age: float) -> bool:
        if age < self._settings.report_seconds:
            return False
        return reporter.is_stale(multiplier) or (
            age > _MOST_PATIENCE_SECONDS and reporter.is_dated()
        )


def _add(tally: Tally, rows: Rows) -> float:
    """Add a slice; the seconds of a core that it took."""
    started = time.thread_time()
    tally.add(rows)
    return time.thread_time() - started
