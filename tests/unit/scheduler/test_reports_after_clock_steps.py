"""A scheduler's clock is set by a little: nobody takes that for slots that it left empty."""

import numpy as np
import pytest
from test_slot_filling import NOW, Collector, Group, Handler, SameThread, make_shards

from services.coordinator.core import Coordination, Moment
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.flow.pacer import Pacer, Plans
from shared.contracts.messages import Bandwidth
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import steady

TICK_SECONDS = 0.1


class Scheduler:
    """One with a shard, by a clock of its own."""

    def __init__(self, number, shard):
        self.clock, self.timeline, self.sent = ManualClock(NOW), SlotTimeline(), Collector()
        self.shard = shard
        shard.filled_until = NOW
        plans = Plans(self.timeline, steady)
        settings = load_settings(request_timeout_seconds=3000)
        self.pacer = Pacer(
            settings,
            self.clock,
            plans,
            Group(),
            Handler({number: shard}),
            SameThread(),
            self.sent,
        )
        self.reporter = DemandReporter(shard, f"scheduler-{number}", 10.0)
        self.reporter.set_demand(demand_of(shard, 0.1))

    def report(self):
        return self.reporter.report(self.clock.now(), 0.1)


class System:
    """Two schedulers, and the coordinator whose clock nobody sets."""

    def __init__(self):
        self.wall = 0.0
        self.core = Coordination(3.0, 0.5)
        self.core.lead(1, "coordinator-1")
        self.core.receive_bandwidth(Bandwidth(100.0))
        shards = make_shards(count=2, pages=4000)
        self.schedulers = [Scheduler(number, shard) for number, shard in shards.items()]
        self.causes = set()

    async def run(self, seconds):
        """The share of the first one after each second, and what both have reported."""
        shares, told = [], []
        for _ in range(seconds):
            for _ in range(round(1.0 / TICK_SECONDS)):
                self.wall += TICK_SECONDS
                for scheduler in self.schedulers:
                    scheduler.clock.advance(TICK_SECONDS)
                    await scheduler.pacer.tick()
            moment = Moment(NOW + self.wall, 1000.0 + self.wall)
            reports = [scheduler.report() for scheduler in self.schedulers]
            told.append([report.achieved_crawls_per_second for report in reports])
            for report in reports:
                self.core.receive_demand(report, moment.wall, moment)
            if (message := self.core.next(moment)) is not None:
                self.core.published(message, moment)
                self.causes.add(message.cause)
                for scheduler in self.schedulers:
                    scheduler.timeline.add(SlotPlan.from_message(message))
            shares.append(self.core.timeline.newest.share_of(0))
        return shares, np.array(told)


@pytest.mark.slow(2)
@pytest.mark.parametrize("step", [0.3, 1.0, 4.0, -0.5])
async def test_a_scheduler_whose_clock_is_set_keeps_its_share(step):
    system = System()
    await system.run(12)
    system.schedulers[0].clock.step(step)
    shares, told = await system.run(10)
    assert shares == pytest.approx([0.5] * 10, abs=0.03)
    assert "shortfall" not in system.causes
    if step > 0:  # Set back, it waits until it is as late as it was.
        assert told == pytest.approx(np.full(told.shape, 50.0), abs=6.0)
