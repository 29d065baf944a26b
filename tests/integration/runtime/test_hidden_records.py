"""A record that the leader has, hidden until the others have copied it, is waited for."""

import asyncio
import time

import pytest
from aiokafka import TopicPartition
from apache import need_apache_kafka
from nodes import three_nodes

from shared.contracts.topics import MULTIPLIERS
from shared.runtime.aiokafka_patches import client_of
from shared.runtime.follower import Follower
from shared.runtime.kafka import ensure_topics, make_consumer, make_producer
from shared.runtime.settings import load_settings


async def leader_of(settings, name):
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        client = client_of(consumer)
        await client.set_topics([name])
        return client.cluster.leader_for_partition(TopicPartition(name, 0))
    finally:
        await consumer.stop()


@pytest.mark.slow(30)
@pytest.mark.kafka
async def test_what_followers_have_not_copied_yet_is_not_known(system_dir):
    need_apache_kafka()
    async with three_nodes(system_dir) as cluster:
        settings = load_settings(
            kafka_bootstrap_servers=cluster.bootstrap_servers, replication_factor=3
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
            taken_at = time.monotonic()
            while received == [b"seen"]:
                assert follower.known_at < taken_at
                await asyncio.sleep(0.02)
                if time.monotonic() > taken_at + 1.0:
                    cluster.resume(frozen)
            await _until(lambda: follower.known_at > taken_at)
        finally:
            stopping.set()
            await asyncio.gather(*tasks)
            await follower.stop()
            await producer.stop()

    assert received == [b"seen", b"hidden"]


async def _until(condition):
    while not condition():
        await asyncio.sleep(0.02)
