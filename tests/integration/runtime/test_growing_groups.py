"""A group gets the partitions that are added: all of them, and no other partition moves."""

import asyncio
import contextlib
import uuid

import pytest
from aiokafka import ConsumerRebalanceListener
from aiokafka.admin import NewPartitions
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from group_member import PARTITIONS, member, settings_for, until

from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime import kafka, partition_watch
from shared.runtime.growing import add_partitions
from shared.runtime.kafka import (
    administering,
    ensure_topics,
    fetch_bytes,
    make_consumer,
    wait_for_leaders,
)
from shared.runtime.publisher import Publisher

BEFORE, AFTER = PARTITIONS, 12
READ = (PAGE_SIGNALS, CRAWL_OUTCOMES)


@pytest.fixture(autouse=True)
def slow_to_look(monkeypatch):
    """Clients look by themselves so seldom that no test waits for it."""
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 300)


@pytest.fixture
async def settings(broker):
    made = settings_for(broker, f"t{uuid.uuid4().hex}.", fetch_buffer_bytes=1024 * 1024)
    await ensure_topics(made)
    return made


def named(settings, instance):
    return settings.model_copy(update={"instance": instance})


class Reader:
    """A handler whose positions are known to all, as a database's are."""

    def __init__(self, positions, seen):
        self.positions, self.seen = positions, seen
        self.loads, self.lost = [], []

    async def assigned(self, partitions):
        self.loads.append(set(partitions))
        return dict(self.positions)

    async def revoked(self, partitions):
        self.lost.append(set(partitions))

    async def handle(self, batch):
        for topic, partitions in batch.items():
            for partition, records in partitions.items():
                self.seen += [record.value for record in records]
                self.positions[topic, partition] = records[-1].offset + 1


class Writer:
    """Writes on and on to all partitions that there are."""

    def __init__(self, settings):
        self.publisher = Publisher(settings)
        self.written = []
        self.partitions = BEFORE

    async def run(self):
        number = 0
        while True:
            for topic in READ:
                value = f"{topic.name} {number}".encode()
                self.written.append(value)
                await (
                    await self.publisher.send(
                        topic, b"k", value, partition=number % self.partitions
                    )
                )
            number += 1
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def writing(settings):
    writer = Writer(settings)
    await writer.publisher.start()
    running = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        await asyncio.wait([running])
        await writer.publisher.flush()
        await writer.publisher.stop()


def share(*members):
    return [set(each.partitions) for each in members]


async def test_new_partitions_are_shared_and_nothing_is_read_twice_or_left_out(settings):
    positions, seen = {}, []
    one, two = Reader(positions, seen), Reader(positions, seen)
    async with member(settings, one) as first, member(named(settings, "two"), two) as second:
        await until(lambda: share(first, second) == [{0, 2}, {1, 3}])
        # Whoever came first had to give half away.
        one.lost, two.lost = [], []
        async with writing(settings) as writer:
            await until(lambda: len(seen) > 200)
            await add_partitions(settings, AFTER)
            first.partition_watch.look_again()
            second.partition_watch.look_again()
            writer.partitions = AFTER
            await until(
                lambda: share(first, second) == [set(range(0, 12, 2)), set(range(1, 12, 2))]
            )
            enough = len(seen) + 400
            await until(lambda: len(seen) > enough)
        await until(lambda: len(seen) >= len(writer.written))
        assert sorted(seen) == sorted(writer.written)
        assert set().union(*one.loads[-1:], *two.loads[-1:]) == set(range(BEFORE, AFTER))
        assert one.lost == two.lost == [], "nobody's partition moved"
        ahead = first._consumer._fetcher._max_partition_fetch_bytes
        assert ahead == fetch_bytes(settings.model_copy(update={"partitions": AFTER}), len(READ))
        assert ahead < fetch_bytes(settings, len(READ))


async def test_a_partition_is_given_away_once_every_topic_has_it(settings):
    reader = Reader({}, [])
    async with member(settings, reader) as only:
        await until(lambda: share(only) == [set(range(BEFORE))])
        names = [settings.topic(topic.name) for topic in READ]
        async with administering(settings) as admin:
            for name in names:
                await admin.create_partitions({name: NewPartitions(AFTER)})
                await wait_for_leaders(admin, [name], AFTER)
                before = only._rebalances.generation
                only.partition_watch.look_again()
                await until(lambda before=before: only._rebalances.generation >= before + 2)
                await until(lambda: only.settled)
                assert share(only) == [set(range(AFTER if name == names[-1] else BEFORE))]
    assert reader.loads == [set(range(BEFORE)), set(range(BEFORE, AFTER))]


async def test_it_is_said_where_partitions_were_added_that_nobody_reads(settings, monkeypatch):
    monkeypatch.setattr(partition_watch, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 1)
    async with member(settings, Reader({}, [])) as only:
        await until(lambda: share(only) == [set(range(BEFORE))])
        assert only.trouble is None
        name = settings.topic(READ[-1].name)
        async with administering(settings) as admin:
            await admin.create_partitions({name: NewPartitions(BEFORE + 1)})
        await until(lambda: only.trouble is not None)
        assert f"topic {name} has {BEFORE + 1} partitions" in only.trouble
        assert share(only) == [set(range(BEFORE))], "the others are read on"
        async with administering(settings) as admin:
            for topic in READ:
                await admin.create_partitions({settings.topic(topic.name): NewPartitions(AFTER)})
        await until(lambda: only.trouble is None and share(only) == [set(range(AFTER))])


async def test_partitions_that_came_while_the_leader_was_away_are_found(settings, monkeypatch):
    monkeypatch.setattr(partition_watch, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 1)
    positions, seen = {}, []
    async with member(settings, Reader(positions, seen)) as only:
        await until(lambda: share(only) == [set(range(BEFORE))])
    await add_partitions(settings, AFTER)
    back = Reader(positions, seen)
    async with member(settings, back) as again:
        await until(lambda: share(again) == [set(range(AFTER))])
    assert back.loads == [set(range(BEFORE)), set(range(BEFORE, AFTER))]


async def test_a_member_that_comes_back_disturbs_nobody(settings):
    other = Reader({}, [])
    async with member(named(settings, "two"), other) as second:
        async with member(settings, Reader({}, [])) as first:
            await until(lambda: share(first, second) == [{0, 2}, {1, 3}])
        generation = second._rebalances.generation
        async with member(settings, Reader({}, [])) as first:
            await until(lambda: share(first, second) == [{0, 2}, {1, 3}])
            await asyncio.sleep(1.0)  # several heartbeats: a new decision would be known
        assert second._rebalances.generation == generation


class Former(ConsumerRebalanceListener):
    """A member of before: it knows no way of sharing but by range."""

    def __init__(self):
        self.partitions = set()

    async def on_partitions_revoked(self, revoked):
        self.partitions = set()

    async def on_partitions_assigned(self, assigned):
        self.partitions = {tp.partition for tp in assigned}


@contextlib.asynccontextmanager
async def former_member(settings):
    strategy = (RangePartitionAssignor,)
    consumer = make_consumer(settings, "readers", partition_assignment_strategy=strategy)
    await consumer.start()
    listener = Former()
    consumer.subscribe([settings.topic(topic.name) for topic in READ], listener=listener)
    polling = asyncio.create_task(poll(consumer))
    try:
        yield listener
    finally:
        polling.cancel()
        await asyncio.wait([polling])
        await consumer.stop()


async def poll(consumer):
    while True:
        await consumer.getmany(timeout_ms=100)


@pytest.mark.parametrize("who_is_first", ["former", "ours"])
async def test_members_of_before_are_replaced_one_by_one(settings, who_is_first):
    by_range = [{0, 1}, {2, 3}]
    await (upgraded_in if who_is_first == "former" else joined_late)(settings, by_range)


async def upgraded_in(settings, by_range):
    async with former_member(settings) as old:
        await until(lambda: old.partitions == set(range(BEFORE)))
        async with member(named(settings, "two"), Reader({}, [])) as new:
            await until(lambda: [old.partitions, *share(new)] == by_range)
    async with (
        member(named(settings, "two"), Reader({}, [])) as new,
        member(settings, Reader({}, [])) as upgraded,  # under the name of the old one
    ):
        await until(lambda: share(upgraded, new) == [{0, 2}, {1, 3}])


async def joined_late(settings, by_range):
    async with member(settings, Reader({}, [])) as new:
        await until(lambda: share(new) == [set(range(BEFORE))])
        async with former_member(named(settings, "two")) as old:
            await until(lambda: [*share(new), old.partitions] == by_range)
        async with member(named(settings, "two"), Reader({}, [])) as upgraded:
            await until(lambda: share(new, upgraded) == [{0, 2}, {1, 3}])
