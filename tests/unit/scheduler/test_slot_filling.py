"""Slots go to their shards, requests to Kafka, late slots nowhere."""

import asyncio

import numpy as np
import pytest
from reference_shard import DAY, rules, url_of

from services.scheduler import metrics
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.pacer import FILLING_SECONDS, PATIENCE_SECONDS, Pacer, Plans
from services.scheduler.flow.slot_filler import SlotFiller, take_back
from services.scheduler.picking.asked import host_multiplier
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rows import HOST
from shared.contracts.codec import decode
from shared.contracts.messages import Allotment, CrawlRequest, Multipliers, PageUpdate
from shared.pacing.slots import KNOWN_AHEAD_SECONDS, SHOWN_WITHIN_SECONDS, SlotPlan, SlotTimeline
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import steady

NOW = 1.7e9


def make_shards(count=4, pages=50, **more):
    shards = {}
    for number in range(count):
        shards[number] = shard = make_shard(number, rules(host_rate=1000.0, **more))
        shard.is_caught_up = True
        for page in range(pages):
            identity = url_of(f"h{number}-{page % 5}", page)
            update = PageUpdate("upsert", identity.url, crawled_at=NOW - 3 * DAY)
            shard.upsert(identity, update, NOW - DAY)
    return shards


def timeline(rate, shards=4, multiplier=1e-9, version=1):
    shares = [Allotment(number, 1 / shards) for number in range(shards)]
    message = Multipliers(version, NOW, NOW, multiplier, rate, 0.0, shares)
    return SlotTimeline([SlotPlan.from_message(message)])


def fill(shards, slots, **settings):
    times, owners = slots.between(NOW, NOW + 1.0)
    filler = SlotFiller(load_settings(**settings), ManualClock(NOW), shards)
    return filler.fill(times, owners, slots.newest)


def requests_of(emissions):
    return [decode(CrawlRequest, value) for e in emissions for _, value in e.messages]


def test_every_slot_of_a_shard_becomes_a_request_of_its_time():
    shards, slots = make_shards(), timeline(80.0)
    times, owners = slots.between(NOW, NOW + 1.0)
    emissions = fill(shards, slots)
    assert sorted(r.requested_at for r in requests_of(emissions)) == times.tolist()
    for emission in emissions:
        mine = times[owners == emission.shard.number]
        assert np.array_equal(emission.picks["time"], mine)
        assert {key.decode() for key, _ in emission.messages} <= set(emission.shard.hosts.names)
        assert emission.shard.filled_until == mine[-1]


def test_slots_of_shards_that_are_not_ready_stay_empty():
    shards = make_shards()
    shards[1].is_caught_up = False
    del shards[2]
    shards[3].filled_until = NOW + 0.5
    emissions = fill(shards, timeline(80.0))
    assert [e.shard.number for e in emissions] == [0, 3]
    assert emissions[1].picks["time"].min() > NOW + 0.5


def test_of_a_shard_that_is_about_to_be_split_nothing_is_asked_for():
    shards, slots = make_shards(), timeline(80.0)
    times, owners = slots.between(NOW, NOW + 1.0)
    filler = SlotFiller(load_settings(), ManualClock(NOW), shards)
    shards[2].is_held = True
    assert [e.shard.number for e in filler.fill(times, owners, slots.newest)] == [0, 1, 3]
    shards[2].is_held = False
    later, owners = slots.between(NOW + 1.0, NOW + 2.0)
    emissions = filler.fill(later, owners, slots.newest)
    assert [e.shard.number for e in emissions] == [0, 1, 2, 3]
    assert emissions[2].picks["time"].min() > NOW + 1.0


def test_a_threshold_keeps_slots_empty_unless_all_budget_is_to_be_spent():
    assert len(requests_of(fill(make_shards(), timeline(40.0, multiplier=1e9)))) == 40
    strict = fill(make_shards(), timeline(40.0, multiplier=1e9), work_conserving=False)
    assert requests_of(strict) == []
    assert all(emission.picks.size == 0 for emission in strict)


def test_the_multiplier_of_a_limited_host_is_what_its_pages_are_worth_above_the_global_one():
    hosts = np.zeros(3, HOST)
    hosts["typical_value"], hosts["held_back"] = (5.0, 5.0, 0.5), (2.0, 9.0, 9.0)
    assert [host_multiplier(host, 3.0) for host in hosts] == [0.0, 2.0, 0.0]


def test_requests_that_are_taken_back_can_be_made_again():
    shards = make_shards(count=1)
    emission = fill(shards, timeline(20.0, shards=1))[0]
    take_back(emission)
    again = shards[0].selector.select(NOW + 1.5 + np.arange(50) / 50, 50.0, 0.0)
    assert set(emission.picks["row"].tolist()) <= set(again["row"].tolist())


class Group:
    """A consumer whose group does as told."""

    settled = True
    is_sure = True
    partitions = frozenset(range(4))


class Handler:
    def __init__(self, shards):
        self.shards = shards


class SameThread:
    async def run(self, function, *args):
        return function(*args)

    run_first = run


class Collector:
    stuck = frozenset()

    def __init__(self):
        self.sent = []

    async def send(self, emissions):
        self.sent += requests_of(emissions)
        return []


@pytest.fixture
def parts():
    clock, group, collector = ManualClock(NOW), Group(), Collector()
    handler = Handler(make_shards(pages=200))
    settings = load_settings()
    slots = timeline(100.0)
    plans = Plans(slots, steady)
    pacer = Pacer(settings, clock, plans, group, handler, SameThread(), collector)
    return pacer, clock, group, collector


async def test_ticks_fill_each_slot_once(parts):
    pacer, clock, _, collector = parts
    for step in (0.05, 0.0, 0.2, 0.15):
        clock.advance(step)
        await pacer.tick()
    assert len(collector.sent) == pytest.approx(40, abs=1)
    assert len({request.request_id for request in collector.sent}) == len(collector.sent)


@pytest.mark.parametrize("speed", [1.0, 86_400.0])
async def test_slots_that_are_a_second_of_the_wall_late_are_lost(speed):
    clock, collector = ManualClock(NOW, speed), Collector()
    slots, handler = timeline(100.0 / speed), Handler(make_shards(pages=200))
    plans = Plans(slots, steady)
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, SameThread(), collector)
    clock.advance(4.0 * speed)
    await pacer.tick()
    assert len(collector.sent) == pytest.approx(100, abs=1)
    assert min(request.requested_at for request in collector.sent) > NOW + 2.99 * speed


class Knowledge:
    """Of the plans: as old as it is told to be."""

    def __init__(self):
        self.age = 0.0

    def __call__(self):
        return steady() - self.age


@pytest.mark.parametrize("speed", [1.0, 86_400.0])
async def test_slots_that_a_plan_to_come_may_change_wait_for_it(speed):
    clock, collector, known = ManualClock(NOW, speed), Collector(), Knowledge()
    slots, handler = timeline(100.0 / speed), Handler(make_shards(pages=400))
    plans = Plans(slots, known)
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, SameThread(), collector)
    clock.advance(0.2 * speed)
    await pacer.tick()
    sent = [len(collector.sent)]
    # The broker is away.
    known.age = KNOWN_AHEAD_SECONDS - SHOWN_WITHIN_SECONDS + 0.6
    for _ in range(3):
        clock.advance(0.2 * speed)
        await pacer.tick()
        sent.append(len(collector.sent))
    nothing = Multipliers(2, NOW, NOW + 0.4 * speed, 1e-9, 0.0, 0.0, [])
    slots.add(SlotPlan.from_message(nothing))
    known.age = 0.0  # it is back, and tells that from 0.4 s on there are no slots
    await pacer.tick()

    assert sent == pytest.approx([20, 20, 20, 20], abs=1)
    assert len(collector.sent) == pytest.approx(40, abs=1)


async def test_who_may_be_ahead_of_the_broker_waits_for_it():
    clock, collector = ManualClock(NOW, 1.0), Collector()
    plans = Plans(timeline(100.0), steady, ahead=lambda: 0.35)
    handler = Handler(make_shards(pages=400))
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, SameThread(), collector)

    clock.advance(1.0)
    await pacer.tick()

    # What the broker had 0.15 s ago may be a plan for now: by a clock that is 0.35 s ahead, for
    # 0.2 s ago.
    assert len(collector.sent) == pytest.approx(80, abs=1)


async def test_knowledge_of_long_ago_brings_no_slot_twice(parts):
    _, clock, group, collector = parts
    known = Knowledge()
    plans = Plans(timeline(100.0), known)
    handler = Handler(make_shards(pages=800))
    pacer = Pacer(load_settings(), clock, plans, group, handler, SameThread(), collector)
    for age, step in [(0.0, 0.3), (9.0, 1.5), (0.8, 0.5), (0.0, 0.5), (3.0, 0.1), (0.0, 0.1)]:
        known.age = age
        clock.advance(step)
        await pacer.tick()

    times = [request.requested_at for request in collector.sent]
    assert len(set(times)) == len(times)
    assert 100 < len(times) <= 300


class SlowThread:
    """Where filling takes its time: the thread has something else to do first."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    async def run(self, function, *args):
        filled = function(*args)
        self.clock.advance(self.seconds)
        self.seconds = 0.0
        return filled

    run_first = run


@pytest.mark.parametrize("speed", [1.0, 86_400.0])
async def test_slots_that_took_too_long_to_fill_are_not_sent_and_their_pages_are_free(speed):
    clock, collector = ManualClock(NOW, speed), Collector()
    slots, handler = timeline(100.0 / speed), Handler(make_shards(pages=200))
    thread = SlowThread(clock, 0.8 * speed)
    plans = Plans(slots, steady)
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, thread, collector)
    before = metrics.FORFEITED_SLOTS._value.get()
    clock.advance(0.9 * speed)
    await pacer.tick()

    latest = PATIENCE_SECONDS + FILLING_SECONDS
    assert len(collector.sent) == pytest.approx(90 - 20, abs=1)
    assert min(r.requested_at for r in collector.sent) >= NOW + (1.7 - latest) * speed
    assert metrics.FORFEITED_SLOTS._value.get() - before == 90 - len(collector.sent)
    in_flight = sum(
        np.count_nonzero(s.attempts.rows["deadline"] > NOW) for s in handler.shards.values()
    )
    assert in_flight == len(collector.sent)


class WaitingEmitter(Collector):
    """Sending the first shard's requests takes long; then something has happened."""

    def __init__(self, happens):
        super().__init__()
        self.happens = happens

    async def send(self, emissions):
        await super().send(emissions)
        self.happens()
        return []


async def test_slots_of_shards_that_waited_for_others_too_long_are_not_sent():
    clock, handler = ManualClock(NOW), Handler(make_shards(pages=200))
    emitter = WaitingEmitter(lambda: clock.advance(2.0))
    plans = Plans(timeline(100.0), steady)
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, SameThread(), emitter)
    clock.advance(0.5)
    await pacer.tick()

    assert {r.host.partition("-")[0] for r in emitter.sent} == {"h0"}
    assert 0 < len(emitter.sent) < 20


async def test_nothing_more_is_sent_once_the_group_decides():
    clock, group, handler = ManualClock(NOW), Group(), Handler(make_shards(pages=200))
    emitter = WaitingEmitter(lambda: setattr(group, "settled", False))
    plans = Plans(timeline(100.0), steady)
    pacer = Pacer(load_settings(), clock, plans, group, handler, SameThread(), emitter)
    clock.advance(0.5)
    await pacer.tick()

    assert 0 < len(emitter.sent) < 20


async def test_a_clock_that_is_set_while_slots_are_filled_makes_none_late():
    clock, collector = ManualClock(NOW), Collector()
    thread = SlowThread(clock, 0.0)

    async def stepping(function, *args):
        clock.step(60.0)
        return function(*args)

    thread.run = stepping
    plans = Plans(timeline(100.0), steady)
    handler = Handler(make_shards(pages=200))
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, thread, collector)
    clock.advance(0.5)
    await pacer.tick()

    assert len(collector.sent) == pytest.approx(50, abs=1)


async def test_nothing_is_sent_when_the_group_decides_meanwhile(parts):
    pacer, clock, group, collector = parts
    group.settled = False
    clock.advance(0.1)
    await pacer.tick()
    assert collector.sent == []
    group.settled = True
    clock.advance(0.1)
    await pacer.tick()
    assert len(collector.sent) == pytest.approx(10, abs=1)


class Producer:
    """Takes batches of five records, and fails when told to."""

    def __init__(self):
        self.batches = []
        self.error = None

    def create_batch(self):
        return Batch()

    async def send_batch(self, batch, topic, *, partition):
        self.batches.append((topic, partition, batch.records))
        future = asyncio.get_running_loop().create_future()
        if self.error is None:
            future.set_result(None)
        else:
            future.set_exception(self.error)
        return future


class Batch:
    def __init__(self):
        self.records = []

    def append(self, *, timestamp, key, value):
        if len(self.records) == 5:
            return None
        self.records.append((key, value))
        return object()

    def record_count(self):
        return len(self.records)


class FakePublisher:
    def __init__(self):
        self.producer = Producer()


async def test_requests_go_out_in_full_batches_to_their_partition():
    publisher = FakePublisher()
    emissions = fill(make_shards(), timeline(80.0))
    await Emitter(load_settings(topic_prefix="x."), publisher).send(emissions)
    batches = publisher.producer.batches
    assert {topic for topic, _, _ in batches} == {"x.crawl-requests"}
    assert sum(len(records) for _, _, records in batches) == 80
    for emission in emissions:
        mine = [records for _, number, records in batches if number == emission.shard.number]
        assert [record for records in mine for record in records] == emission.messages


async def test_a_failed_delivery_shows_at_the_next_call():
    publisher = FakePublisher()
    emitter = Emitter(load_settings(), publisher)
    publisher.producer.error = OSError("the broker is away")
    await emitter.send(fill(make_shards(count=1), timeline(8.0, shards=1)))
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="away"):
        await emitter.send([])
