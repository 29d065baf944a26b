"""Brokers that answer and acknowledge no writes cost the slots of that time, and nothing else."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from aiokafka.errors import KafkaTimeoutError
from test_clock_steps import RATE, SHARDS, World
from test_slot_filling import NOW, Batch, SameThread, fill, make_shards, timeline

from services.scheduler import metrics
from services.scheduler.flow import emitter as emitting
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.reporting import Reporting
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings

SOON = 0.01
"""In place of the seconds that a producer is given."""


class Brokers:
    """Acknowledge no batch of some partitions; a producer takes one more of each, and no other."""

    def __init__(self):
        self.producer = self
        self.refusing = set()
        self.waiting = {}
        self.taken = []

    def create_batch(self):
        return Batch()

    async def send_batch(self, batch, topic, *, partition):
        if partition in self.waiting:
            # aiokafka itself waits for half a minute, and queues nothing then.
            await asyncio.wait([self.waiting[partition]], timeout=20 * SOON)
            if partition in self.waiting:
                raise KafkaTimeoutError
        acknowledged = asyncio.get_running_loop().create_future()
        if partition in self.refusing:
            self.waiting[partition] = acknowledged
        else:
            acknowledged.set_result(None)
        self.taken += [(partition, *record) for record in batch.records]
        return acknowledged

    async def acknowledge(self):
        self.refusing.clear()
        for partition in list(self.waiting):
            self.waiting.pop(partition).set_result(None)
        await asyncio.sleep(0)


@pytest.fixture
def brokers(monkeypatch):
    monkeypatch.setattr(emitting, "TAKEN_SECONDS", SOON)
    return Brokers()


async def test_what_the_producer_does_not_take_is_handed_back(brokers):
    emitter = Emitter(load_settings(), brokers)
    [emission] = fill(make_shards(count=1), timeline(8.0, shards=1))
    brokers.refusing.add(0)
    [left] = await emitter.send([emission])
    assert [(0, *message) for message in emission.messages] == [
        *brokers.taken,
        *((0, *message) for message in left.messages),
    ]
    assert len(left.messages) == 8 - 5, "batches of the test's have five records"
    assert left.picks["time"].tolist() == emission.picks["time"].tolist()[5:]
    assert emitter.stuck == {0}
    assert emitter.unsent_since() == emission.picks["time"][0]
    await brokers.acknowledge()
    assert emitter.stuck == set()


async def test_a_topic_that_cannot_be_looked_up_leaves_no_shard_out_for_ever(brokers):
    async def looking_up(_batch, _topic, *, partition):
        await asyncio.sleep(20 * SOON)

    emitter = Emitter(load_settings(), SimpleNamespace(producer=brokers))
    brokers.send_batch = looking_up
    [emission] = fill(make_shards(count=1), timeline(4.0, shards=1))
    [left] = await emitter.send([emission])
    assert left.messages == emission.messages
    assert emitter.stuck == set()


class Scheduler:
    """One whose requests go to brokers."""

    def __init__(self, brokers):
        self.world = World()
        self.world.pacer._emitter = Emitter(load_settings(), brokers)
        self.brokers = brokers
        self.shards = self.world.pacer._handler.shards

    async def run(self, seconds):
        """How many requests of each shard the producer has taken meanwhile."""
        before = len(self.brokers.taken)
        await self.world.run(seconds)
        numbers = [partition for partition, *_ in self.brokers.taken[before:]]
        return [numbers.count(number) for number in range(SHARDS)]


async def test_slots_are_given_up_while_nothing_is_acknowledged_and_filled_again_after_it(brokers):
    scheduler = Scheduler(brokers)
    each = RATE / SHARDS
    assert await scheduler.run(2) == pytest.approx([2 * each] * SHARDS, abs=2)
    brokers.refusing.update(range(SHARDS))
    forfeited = metrics.FORFEITED_SLOTS._value.get()
    assert max(await scheduler.run(3)) <= 2, "a batch of each, of a tick or two"
    forfeited = metrics.FORFEITED_SLOTS._value.get() - forfeited
    assert forfeited == pytest.approx(3 * RATE, abs=5)
    waiting = sum(
        np.count_nonzero(s.attempts.rows["deadline"] > NOW) for s in scheduler.shards.values()
    )
    assert waiting == len(brokers.taken), "the pages of what was not sent are free"
    await brokers.acknowledge()
    assert await scheduler.run(2) == pytest.approx([2 * each] * SHARDS, abs=2)


async def test_shards_whose_requests_are_acknowledged_do_not_wait_for_another(brokers):
    scheduler = Scheduler(brokers)
    brokers.refusing.add(0)
    first, second = await scheduler.run(3)
    assert first <= 2
    assert second == pytest.approx(3 * RATE / SHARDS, abs=2)
    assert scheduler.shards[0].notes.was_interrupted
    assert not scheduler.shards[1].notes.was_interrupted


async def test_reports_for_which_the_producer_has_no_room_are_left_to_the_next_ones(monkeypatch):
    stopping, asked = asyncio.Event(), []

    class Full:
        async def send(self, _topic, key, _value, *, partition):
            asked.append(key)
            if len(asked) == 1:
                raise KafkaTimeoutError
            stopping.set()

    settings = load_settings(report_seconds=SOON)
    handler = SimpleNamespace(shards={})
    reporting = Reporting(
        settings, ManualClock(NOW), Full(), SameThread(), handler, timeline(1.0, shards=1)
    )
    monkeypatch.setattr(reporting, "_begin_reports", lambda: [7])
    monkeypatch.setattr(reporting, "_reports", lambda left: [(b"%d" % left.pop(), b"{}")])
    await reporting.run_reports(stopping)
    assert asked == [b"7", b"7"]
