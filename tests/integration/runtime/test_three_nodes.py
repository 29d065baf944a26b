"""Three nodes, of which one is gone or frozen: what the others lead is read meanwhile, and what a
leader hides until the others have copied it is waited for."""

import asyncio
import shutil
import time
import uuid

import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from apache import need_apache_kafka
from nodes import three_nodes

from shared.contracts.topics import CRAWL_OUTCOMES, MULTIPLIERS
from shared.runtime.aiokafka_patches import client_of
from shared.runtime.consumer import BatchConsumer
from shared.runtime.follower import Follower
from shared.runtime.group_reading import GroupReader
from shared.runtime.kafka import ensure_topics, make_consumer, make_producer
from shared.runtime.leaders import Leaders
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import steady

pytestmark = [pytest.mark.kafka, pytest.mark.slow(10), pytest.mark.asyncio(loop_scope="module")]

PATIENCE_SECONDS = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(scratch_dir):
    """All three nodes; a test leaves them up."""
    need_apache_kafka()
    folder = scratch_dir / f"nodes-{uuid.uuid4().hex[:8]}"
    async with three_nodes(folder) as nodes:
        yield nodes
    shutil.rmtree(folder)


@pytest.fixture
def prefix():
    return f"t{uuid.uuid4().hex}."


class Noting:
    """Notes which partitions had something to be handled."""

    def __init__(self):
        self.handled = set()

    async def assigned(self, partitions):
        return {(CRAWL_OUTCOMES.name, number): 0 for number in partitions}

    async def revoked(self, _partitions):
        pass

    async def unread(self, _ends):
        pass

    async def handle(self, batch):
        self.handled |= batch[CRAWL_OUTCOMES.name].keys()


async def without_leader(settings):
    async with make_consumer(settings) as consumer:
        return await Leaders(consumer, [settings.topic(CRAWL_OUTCOMES.name)]).lacking({0, 1, 2})


@pytest.fixture
def settings_of_three(cluster, prefix):
    return load_settings(
        kafka_bootstrap_servers=cluster.bootstrap_servers,
        topic_prefix=prefix,
        partitions=3,
        replication_factor=1,
    )


async def lose_some(cluster, settings):
    """Let a node go with the only copies of some partitions, each of which has a record."""
    await ensure_topics(settings, (CRAWL_OUTCOMES,))
    async with make_producer(settings) as producer:
        for number in range(3):
            await producer.send_and_wait(
                settings.topic(CRAWL_OUTCOMES.name), b"{}", partition=number
            )
    await asyncio.to_thread(cluster.nodes[3].kill)
    await _until(lambda: without_leader(settings))
    gone = await without_leader(settings)
    assert 0 < len(gone) < 3, "each node has some of them"
    return gone


@pytest.mark.long
async def test_partitions_of_other_nodes_are_read_and_theirs_when_the_node_is_back(
    cluster, settings_of_three
):
    settings = settings_of_three
    gone = await lose_some(cluster, settings)
    handler, stopping = Noting(), asyncio.Event()
    reader = BatchConsumer(*(settings, "group", (CRAWL_OUTCOMES,), handler), unread=handler.unread)
    await reader.start()
    reading = asyncio.create_task(reader.run(stopping))
    try:
        await _until(lambda: handler.handled == {0, 1, 2} - gone)
        assert reader.settled
        assert all(str(number) in reader.trouble for number in gone)
        await asyncio.to_thread(cluster.nodes[3].start)
        await _until(lambda: handler.handled == {0, 1, 2})
        assert reader.trouble is None
    finally:
        stopping.set()
        await reading
        await reader.stop()


@pytest.mark.long
async def test_a_group_that_commits_reads_those_of_other_nodes_too(cluster, settings_of_three):
    gone = await lose_some(cluster, settings_of_three)
    handled, stopping = set(), asyncio.Event()

    async def handle(records):
        handled.update(record.partition for record in records)

    reader = GroupReader(settings_of_three, "group", (CRAWL_OUTCOMES,), handle, 0.0)
    await reader.start()
    reading = asyncio.create_task(reader.run(stopping))
    try:
        await _until(lambda: handled == {0, 1, 2} - gone)
        assert not reader.settled
        assert all(str(number) in reader.trouble for number in gone)
        await asyncio.to_thread(cluster.nodes[3].start)
        await _until(lambda: handled == {0, 1, 2} and reader.settled)
        assert reader.trouble is None
    finally:
        stopping.set()
        await reading
        await reader.stop()


async def leader_of(settings, name):
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        client = client_of(consumer)
        await client.set_topics([name])
        return client.cluster.leader_for_partition(TopicPartition(name, 0))
    finally:
        await consumer.stop()


@pytest.mark.long
async def test_what_followers_have_not_copied_yet_is_not_known(cluster, prefix):
    settings = load_settings(
        kafka_bootstrap_servers=cluster.bootstrap_servers,
        topic_prefix=prefix,
        replication_factor=3,
    )
    await ensure_topics(settings, (MULTIPLIERS,))
    name = settings.topic(MULTIPLIERS.name)
    producer = make_producer(settings, acks=1, enable_idempotence=False)
    await producer.start()
    received = []
    follower = Follower(settings, MULTIPLIERS, lambda record: received.append(record.value))
    await follower.start()
    stopping = asyncio.Event()
    tasks = [
        asyncio.create_task(follower.run(stopping)),
        asyncio.create_task(follower.keep_up(stopping)),
    ]
    try:
        await producer.send_and_wait(name, b"seen", b"key", partition=0)
        await _until(lambda: received == [b"seen"])
        leader = await leader_of(settings, name)
        frozen = next(number for number in cluster.nodes if number != leader)
        cluster.pause(frozen)
        await producer.send_and_wait(name, b"hidden", b"key", partition=0)
        taken_at = steady()
        while received == [b"seen"]:
            assert follower.known_at < taken_at
            await asyncio.sleep(0.02)
            if steady() > taken_at + 1.0:
                cluster.resume(frozen)
        await _until(lambda: follower.known_at > taken_at)
    finally:
        stopping.set()
        await asyncio.gather(*tasks)
        await follower.stop()
        await producer.stop()

    assert received == [b"seen", b"hidden"]


async def _until(condition):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
