"""Nothing that was acknowledged is lost when a broker is killed and starts again."""

import asyncio

import pytest
from aiokafka import TopicPartition
from apache import OWN_ONCE

pytestmark = [pytest.mark.slow(2), OWN_ONCE]


async def test_a_kill_loses_nothing_acknowledged_and_repeats_nothing(
    own_broker, connect, read, unique
):
    clients = connect(own_broker.bootstrap_servers)
    await clients.create_topic(unique, 3)
    producer = await clients.producer(
        enable_idempotence=True, linger_ms=2, retry_backoff_ms=50, request_timeout_ms=60_000
    )
    pending: list[tuple[bytes, asyncio.Future]] = []

    async def produce() -> None:
        for number in range(3000):
            value = b"%d" % number
            pending.append((value, await producer.send(unique, value, partition=number % 3)))
            await asyncio.sleep(0.0005)

    producing = asyncio.create_task(produce())
    await asyncio.sleep(0.5)
    await asyncio.to_thread(own_broker.kill)
    await asyncio.to_thread(own_broker.start)
    await producing
    acknowledged = {}
    for value, future in pending:
        stored = await future
        acknowledged[stored.partition, stored.offset] = value
    assert len(acknowledged) == 3000
    consumer = await clients.consumer(unique)
    records = await read(consumer, 3000)
    assert {(r.partition, r.offset): r.value for r in records} == acknowledged
    ends = await consumer.end_offsets([TopicPartition(unique, number) for number in range(3)])
    assert sum(ends.values()) == 3000


async def test_topics_and_committed_offsets_survive(own_broker, connect, read, unique):
    clients = connect(own_broker.bootstrap_servers)
    await clients.create_topic(unique, 5, retention_ms="123456789")
    producer = await clients.producer()
    place = TopicPartition(unique, 4)
    for number in range(10):
        await producer.send_and_wait(unique, b"%d" % number, partition=4)
    consumer = await clients.consumer(unique, group_id=unique, enable_auto_commit=False)
    await read(consumer, 6)
    await consumer.commit({place: 6})
    await consumer.stop()
    await producer.stop()
    for stop in (own_broker.stop, own_broker.kill):
        await asyncio.to_thread(stop)
        await asyncio.to_thread(own_broker.start)
        again = await clients.consumer(unique, group_id=unique, enable_auto_commit=False)
        assert await again.committed(place) == 6
        assert again.partitions_for_topic(unique) == set(range(5))
        values = [record.value for record in await read(again, 4)]
        assert values == [b"6", b"7", b"8", b"9"]
        await again.stop()


async def test_a_group_goes_on_after_a_restart(own_broker, connect, read, unique):
    clients = connect(own_broker.bootstrap_servers)
    await clients.create_topic(unique, 2)
    consumer = await clients.consumer(unique, group_id=unique, enable_auto_commit=False)
    producer = await clients.producer(request_timeout_ms=60_000)
    await producer.send_and_wait(unique, b"before", partition=0)
    await read(consumer, 1)
    await asyncio.to_thread(own_broker.kill)
    await asyncio.to_thread(own_broker.start)
    await producer.send_and_wait(unique, b"after", partition=1)
    (record,) = await read(consumer, 1)
    assert record.value == b"after"
    await consumer.commit()
    assert await consumer.committed(TopicPartition(unique, 1)) == 1
