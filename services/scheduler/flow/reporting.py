"""Reports to the coordinator: demand curves, refreshed beside the picking at a small cost."""

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from aiokafka.errors import KafkaTimeoutError

from services.scheduler import metrics
from services.scheduler.demand.class_reports import label_of
from services.scheduler.demand.patience import movement
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import Demand, Estimate, Tally
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

_PATIENT_DUTY: Final = 0.03
"""The same where demand is computed anew only because time has passed."""

_FIRST_DUTY: Final = 1.0
"""The same before the demand of a shard is more than an estimate."""

_ESTIMATED_AT_ONCE: Final = 8
"""Shards that are new, and report together."""

_AT_ONCE_SECONDS: Final = 0.01
"""Of the shards' thread, for reports: then it is a tick's turn, if one waits."""

_LONGEST_PAUSE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1


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
            left = await self._thread.run(self._begin_reports)
            while left:
                await self._publish(await self._thread.run(self._reports, left))

    async def _publish(self, reports: list[tuple[bytes, bytes]]) -> None:
        # Where the brokers acknowledge nothing, the producer has room no more. What is dropped then
        # the next reports replace.
        with contextlib.suppress(KafkaTimeoutError):
            for key, value in reports:
                await self._publisher.send(DEMAND_CURVES, key, value, partition=0)

    def _begin_reports(self) -> list[Shard]:
        """What is told of all shards at once; which there are."""
        self._follow_shards()
        multiplier = self._multiplier()
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
        return list(self._reporters)

    def _reports(self, left: list[Shard]) -> list[tuple[bytes, bytes]]:
        """Key and value of each report of some shards, which are taken from those that are left."""
        now, multiplier = self._clock.now(), self._multiplier()
        until = time.thread_time() + _AT_ONCE_SECONDS
        found = []
        while left:
            reporter = self._reporters.get(left[-1])
            if reporter is None or reporter.demand is None:
                left.pop()
            elif not reporter.is_prepared:
                # Of a large shard this is a turn of its own.
                reporter.prepare(now, len(self._reporters))
            elif (report := reporter.report(now, multiplier, len(self._reporters))) is not None:
                found.append((str(left.pop().number).encode(), encode(report)))
            if time.thread_time() >= until:
                break
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
        while not stopping.is_set():
            await self._estimate_new_ones()
            began = time.perf_counter()
            copied = await self._thread.run(self._copy, shard, tally)
            if copied is None:
                break
            rows, duty = copied
            turn = min(await asyncio.to_thread(_add, tally, rows) / duty, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(max(began + turn - time.perf_counter(), 0.0))
        else:
            return
        before, multiplier = self.demand_of(shard), self._multiplier()
        demand, moved = await asyncio.to_thread(_finish, tally, before, multiplier)
        await self._thread.run(self._take, shard, tally, demand, moved)

    async def _estimate_new_ones(self) -> None:
        """A shard that is new reports at once, by a sample of its pages.

        It gets no budget before it has reported, and a pass over all pages takes a while. Some of
        them report together: each alone would get the others' part at first.
        """
        while estimates := await self._thread.run(self._begin_estimates):
            demands = await asyncio.to_thread(_finished, estimates.values())
            left = await self._thread.run(self._take_estimates, list(estimates), demands)
            while left:
                await self._publish(await self._thread.run(self._reports, left))

    def _begin_estimates(self) -> dict[Shard, Estimate]:
        self._follow_shards()
        multiplier = self._multiplier()
        new = [shard for shard, reporter in self._reporters.items() if reporter.demand is None]
        return {shard: Estimate(shard, multiplier) for shard in new[:_ESTIMATED_AT_ONCE]}

    def _take_estimates(self, shards: list[Shard], demands: list[Demand]) -> list[Shard]:
        """Which of them are still there."""
        taken = []
        for shard, demand in zip(shards, demands, strict=True):
            reporter = self._reporters.get(shard)
            if reporter is not None:
                reporter.set_demand(demand)
                taken.append(shard)
        return taken

    def demand_of(self, shard: Shard) -> Demand | None:
        """The demand that a shard reports now; None before it is known."""
        reporter = self._reporters.get(shard)
        return reporter.demand if reporter is not None else None

    def _copy(self, shard: Shard, tally: Tally) -> tuple[Rows, float] | None:
        """The next slice, and what part of a core adding it may take; None: there is none."""
        reporter = self._reporters.get(shard)
        rows = tally.copy() if reporter is not None else None
        if reporter is None or rows is None:
            return None
        if shard not in self._computed_at:
            return rows, _FIRST_DUTY
        return rows, _DUTY if reporter.is_stale(self._multiplier()) else _PATIENT_DUTY

    def _take(self, shard: Shard, tally: Tally, demand: Demand, moved: float) -> None:
        reporter = self._reporters.get(shard)
        if reporter is None:
            return
        is_known = shard in self._passed or tally.is_sound(demand)
        self._passed[shard] = demand
        if is_known:
            self._computed_at[shard] = time.monotonic()
            reporter.set_demand(demand, moved)

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
        return reporter.is_stale(multiplier) or reporter.is_dated(age)


def _add(tally: Tally, rows: Rows) -> float:
    """Add a slice; the seconds of a core that it took."""
    started = time.thread_time()
    tally.add(rows)
    return time.thread_time() - started


def _finish(tally: Tally, before: Demand | None, multiplier: float) -> tuple[Demand, float]:
    """What a pass found, and by what part it is another than before."""
    demand = tally.finish()
    return demand, math.inf if before is None else movement(before, demand, multiplier)


def _finished(estimates: Iterable[Estimate]) -> list[Demand]:
    return [estimate.finish() for estimate in estimates]
