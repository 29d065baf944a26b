"""Somebody sets the clock: the slots go on at their pace, none is lost, and none comes twice."""

import asyncio
import time

import pytest
from reference_shard import DAY, rules, url_of

from services.scheduler.flow.pacer import Pacer, Plans
from services.scheduler.picking.calendar import make_shard
from shared.contracts.codec import decode
from shared.contracts.messages import Allotment, CrawlRequest, Multipliers, PageUpdate
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import steady

NOW = 1.7e9
HOUR = 3600.0
RATE = 40.0
SHARDS = 2
TICKS = 20
"""A second."""


class Group:
    settled = True
    is_sure = True
    partitions = frozenset(range(SHARDS))


class Handler:
    def __init__(self):
        self.shards = {number: full_shard(number) for number in range(SHARDS)}


class SameThread:
    async def run(self, function, *args):
        return function(*args)

    run_first = run


class Seconds:
    """Counts what is asked for in each second of the wall."""

    stuck = frozenset()

    def __init__(self):
        self.counts = [0]
        self.ids = []

    async def send(self, emissions):
        found = [decode(CrawlRequest, value) for e in emissions for _, value in e.messages]
        self.counts[-1] += len(found)
        self.ids += [request.request_id for request in found]
        return []


def full_shard(number):
    shard = make_shard(number, rules(host_rate=1000.0))
    shard.is_caught_up = True
    for page in range(600):
        identity = url_of(f"h{number}-{page % 200}", page)
        update = PageUpdate("upsert", identity.url, crawled_at=NOW - 3 * DAY)
        shard.upsert(identity, update, NOW - DAY)
    return shard


class World:
    """A scheduler, and the coordinator whose plans it reads."""

    def __init__(self, speed=1.0, known_at=steady):
        self.clock = ManualClock(NOW, speed)
        self.collector = Seconds()
        self.slots = SlotTimeline()
        self.plan(NOW, 0.0)
        plans = Plans(self.slots, known_at)
        self.pacer = Pacer(
            load_settings(), self.clock, plans, Group(), Handler(), SameThread(), self.collector
        )

    def plan(self, effective_at, first_slot, rate=RATE):
        shares = [Allotment(number, 1 / SHARDS) for number in range(SHARDS)]
        version = self.slots.last_version + 1
        message = Multipliers(
            version, NOW, effective_at, 1e-9, rate / self.clock.speed, first_slot, shares
        )
        self.slots.add(SlotPlan.from_message(message))

    async def run(self, seconds):
        """What is asked for in each of so many seconds of the wall."""
        self.collector.counts = []
        for _ in range(seconds):
            self.collector.counts.append(0)
            for _ in range(TICKS):
                self.clock.advance(self.clock.speed / TICKS)
                await self.pacer.tick()
        assert len(set(self.collector.ids)) == len(self.collector.ids)
        return self.collector.counts


@pytest.mark.parametrize(
    ("step", "speed"),
    [
        *((step, 1.0) for step in (HOUR, 2.0, 0.3)),
        *((step, 1000.0) for step in (2.0, 0.3)),
        pytest.param(HOUR, 1000.0, marks=pytest.mark.long),  # 41 days at once
    ],
)
async def test_a_step_forward_costs_no_slot_and_fills_none_at_once(step, speed):
    world = World(speed)
    before = await world.run(3)
    world.clock.step(step * speed)
    after = await world.run(4)
    assert before + after == pytest.approx([RATE] * 7, abs=1)


@pytest.mark.parametrize("speed", [1.0, 1000.0])
@pytest.mark.parametrize("step", [-2.0, -0.3])
async def test_a_step_back_costs_its_length_and_catches_nothing_up(step, speed):
    """A worker goes no further back than two seconds: it begins anew."""
    world = World(speed)
    before = await world.run(3)
    world.clock.step(step * speed)
    after = await world.run(4)
    assert max(before + after) <= RATE + 1
    assert sum(before + after) >= 7 * RATE + step * RATE - 2
    assert after[2:] == pytest.approx([RATE] * 2, abs=1)


async def test_slots_of_the_time_that_a_machine_slept_wait_for_its_plans(monkeypatch):
    """They may have been taken back since: nothing of that is known here yet."""
    slept, look = [0.0], time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda way: look(way) + slept[0] * (way == time.CLOCK_BOOTTIME)
    )
    fell_asleep_at = steady()
    world = World(known_at=lambda: fell_asleep_at)
    slept[0] = HOUR
    world.clock.advance(HOUR)
    assert await world.run(2) == [0, 0]


@pytest.mark.parametrize("step", [HOUR, 2.0])
@pytest.mark.parametrize("coordinator_first", [True, False])
async def test_a_coordinator_whose_clock_is_set_at_another_moment_costs_nothing(
    step, coordinator_first
):
    world = World()
    counts = await world.run(2)
    passed = 2 * RATE
    ours, theirs = world.clock.time, world.clock.time
    if coordinator_first:
        theirs += step
    else:
        world.clock.step(step)
    # Until both are set a plan of the other's time comes: slots go on at their pace.
    world.plan(theirs + 0.5, passed + 0.5 * RATE)
    counts += await world.run(2)
    if coordinator_first:
        world.clock.step(step)
    world.plan(ours + step + 2.5, passed + 2.5 * RATE)
    counts += await world.run(3)
    assert counts == pytest.approx([RATE] * 7, abs=1)


async def test_a_clock_that_is_set_while_the_group_decides_is_followed_at_once():
    """A plan that comes between is of the new time: it must not be moved with the old ones."""
    world = World()
    counts = await world.run(2)
    world.pacer._consumer = Unsettled()
    stopping = asyncio.Event()
    running = asyncio.create_task(world.pacer.run(stopping))
    world.clock.step(HOUR)
    turns = world.pacer.progressed_at
    for _ in range(2):
        while world.pacer.progressed_at == turns:
            await asyncio.sleep(0.01)
        turns = world.pacer.progressed_at
    stopping.set()
    await running
    world.pacer._consumer = Group()
    world.plan(world.clock.time + 0.5, 2.5 * RATE, rate=2 * RATE)
    counts += await world.run(3)
    assert counts == pytest.approx([RATE, RATE, 1.5 * RATE, 2 * RATE, 2 * RATE], abs=1)


class Unsettled(Group):
    settled = False
