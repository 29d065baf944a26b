"""What a shard left empty while it could not be picked from is no sign of what it can use."""

import asyncio

import numpy as np
import pytest
from reference_shard import DAY, World, rules

from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.flow.pacer import Pacer, Plans
from shared.pacing.slots import SlotTimeline
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import steady

NOW = 1.7e9


class Group:
    settled = True
    is_sure = True
    partitions = frozenset({0})


class Handler:
    def __init__(self, shard):
        self.shards = {0: shard}


class SameThread:
    async def run(self, function, *args):
        return function(*args)

    run_first = run


class Emitter:
    stuck = frozenset()

    async def is_sent_within(self, seconds):
        return True


class Reported:
    """A shard whose reports are looked at, and the pacer that picks of it."""

    def __init__(self):
        self.world = World(rules())
        self.world.add_page("h", 1, NOW - DAY)
        self.shard, self.group = self.world.shard, Group()
        self._reporter = DemandReporter(self.shard, "me", 20.0)
        self._reporter.set_demand(demand_of(self.shard, 0.1))
        plans, self.clock = Plans(SlotTimeline(), steady), ManualClock(NOW)
        self.pacer = Pacer(
            *(load_settings(), self.clock, plans, self.group, Handler(self.shard)),
            *(SameThread(), Emitter()),
        )
        self._times = NOW + np.arange(1, 100)
        self.told = []

    def report(self):
        self.told.append(self._reporter.report(float(self._times[len(self.told)]), 0.1))
        return self.told[-1]

    def runs(self):
        """Which run each report was of, counted from 0."""
        names = list(dict.fromkeys(report.run for report in self.told))
        return [names.index(report.run) for report in self.told]


async def test_a_shard_that_is_not_split_after_all_begins_a_new_run_of_reports():
    reported = Reported()
    reported.report()
    await reported.pacer.hold(reported.shard)
    reported.report()
    await reported.pacer.hold(reported.shard)  # It is asked again and again.
    reported.report()
    await reported.pacer.go_on(reported.shard)
    reported.report()
    await reported.pacer.go_on(reported.shard)
    reported.report()
    assert reported.runs() == [0, 0, 0, 1, 1]
    assert [report.sequence for report in reported.told] == [1, 2, 3, 1, 2]


@pytest.mark.parametrize(("host", "runs"), [("large", [0, 0, 0, 1, 1]), ("small", [0, 0, 0, 0, 0])])
def test_a_shard_begins_a_new_run_when_most_of_its_pages_may_be_crawled_again(host, runs):
    """Their host asked for a pause: what the shard left empty meanwhile is no sign either."""
    reported = Reported()
    world = reported.world
    for number in range(1, 20):
        world.add_page("large", number, NOW - DAY)
    world.add_page("small", 20, NOW - DAY)
    shard = reported.shard
    reported.report()
    shard.pause_host(shard.hosts.intern(f"{host}.example"), NOW + 3.5, NOW + 1.0)
    for _ in range(4):
        reported.report()
    assert reported.runs() == runs


@pytest.mark.parametrize("step", [0.3, 2.0, 3600.0, -0.5])
async def test_a_shard_begins_a_new_run_where_the_clock_was_set(step):
    """How long the time of its slots was since the report before, nobody knows by its times."""
    reported = Reported()
    reported.report()
    reported.report()
    reported.clock.step(step)
    await reported.pacer.tick()
    reported._times += step
    reported.shard.notes.note_crawls(np.array([7, 0, 0, 0, 0]), 1.0)
    assert reported.report().achieved_crawls_per_second == pytest.approx(7.0)
    reported.report()
    assert reported.runs() == [0, 0, 1, 1]


@pytest.mark.parametrize("what", ["settled", "is_sure"])
async def test_shards_begin_a_new_run_where_the_group_interrupts_the_picking_and_after_it(what):
    reported, stopping = Reported(), asyncio.Event()
    running = asyncio.create_task(reported.pacer.run(stopping))
    try:
        for is_serving in (True, False, True):
            setattr(reported.group, what, is_serving)
            before = reported.pacer.progressed_at
            while reported.pacer.progressed_at == before:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            reported.report()
            reported.report()
    finally:
        stopping.set()
        await running
    assert reported.runs() == [0, 0, 1, 1, 2, 2]
