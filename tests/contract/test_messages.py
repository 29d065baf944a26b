"""What is produced is what is consumed, on both brokers."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError


async def test_bytes_keys_headers_and_timestamps_come_back(clients, read, unique):
    await clients.create_topic(unique, retention_ms="-1")
    producer = await clients.producer()
    headers = [("stage", b"decode"), ("empty", b""), ("stage", b"again")]
    value = bytes(range(256))
    await producer.send_and_wait(unique, value, key=b"k\0", headers=headers, timestamp_ms=1234)
    await producer.send_and_wait(unique, None, key=b"gone")
    consumer = await clients.consumer(unique)
    first, second = await read(consumer, 2)
    assert (first.value, first.key, first.timestamp) == (value, b"k\0", 1234)
    assert list(first.headers) == headers
    assert (second.value, second.key, second.offset) == (None, b"gone", 1)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_batches_keep_their_order(clients, read, unique, idempotent, compression):
    await clients.create_topic(unique, 3)
    producer = await clients.producer(
        enable_idempotence=idempotent, compression_type=compression, linger_ms=5
    )
    sent = [
        await producer.send(unique, b"%d" % number, partition=number % 3) for number in range(3000)
    ]
    stored = await asyncio.gather(*sent)
    consumer = await clients.consumer(unique)
    records = await read(consumer, 3000)
    by_place = {(record.partition, record.offset): record.value for record in records}
    expected = {(m.partition, m.offset): b"%d" % number for number, m in enumerate(stored)}
    assert by_place == expected
    assert [m.offset for m in stored[::3]] == list(range(1000))


async def test_a_fetch_returns_a_message_larger_than_it_asked_for(clients, read, unique):
    await clients.create_topic(unique)
    producer = await clients.producer(max_request_size=2_000_000)
    for size in (10, 900_000, 10):
        await producer.send_and_wait(unique, b"x" * size)
    consumer = await clients.consumer(unique, fetch_max_bytes=1000, max_partition_fetch_bytes=1000)
    assert [len(record.value) for record in await read(consumer, 3)] == [10, 900_000, 10]


async def test_many_partitions_are_read_evenly(clients, read, unique):
    await clients.create_topic(unique, 40)
    producer = await clients.producer(linger_ms=5)
    await asyncio.gather(
        *[
            await producer.send(unique, b"x" * 50_000, partition=number % 40)
            for number in range(400)
        ]
    )
    consumer = await clients.consumer(unique, fetch_max_bytes=200_000)
    records = await read(consumer, 400)
    assert {record.partition for record in records} == set(range(40))


async def test_a_waiting_fetch_is_woken_by_a_message(clients, read, unique):
    await clients.create_topic(unique, 4)
    producer = await clients.producer()
    consumer = await clients.consumer(unique, fetch_max_wait_ms=60_000, request_timeout_ms=120_000)
    await producer.send_and_wait(unique, b"first", partition=0)
    await read(consumer, 1)
    for number in range(5):  # each fetch would otherwise wait for a minute
        waiting = asyncio.create_task(read(consumer, 1))
        await asyncio.sleep(0.05)
        await producer.send_and_wait(unique, b"%d" % number, partition=number % 4)
        (record,) = await asyncio.wait_for(waiting, 30)
        assert record.value == b"%d" % number


async def test_offsets_by_time(clients, unique):
    await clients.create_topic(unique, retention_ms="-1")
    place = TopicPartition(unique, 0)
    producer = await clients.producer(linger_ms=20)
    sent = [
        await producer.send(unique, b"x", timestamp_ms=1_000_000 + 10 * number)
        for number in range(500)
    ]
    await asyncio.gather(*sent)
    consumer = await clients.consumer()
    consumer.assign([place])
    found = await consumer.offsets_for_times({place: 1_000_000})
    assert found[place].offset == 0
    found = await consumer.offsets_for_times({place: 1_002_505})
    assert (found[place].offset, found[place].timestamp) == (251, 1_002_510)
    assert (await consumer.offsets_for_times({place: 1_004_991}))[place] is None
    assert await consumer.beginning_offsets([place]) == {place: 0}
    assert await consumer.end_offsets([place]) == {place: 500}


async def test_a_message_too_large_for_the_topic_is_refused(clients, read, unique):
    await clients.create_topic(unique, max_message_bytes="2000")
    producer = await clients.producer()
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(unique, b"x" * 3000)
    await producer.send_and_wait(unique, b"x" * 1000)
    consumer = await clients.consumer(unique)
    assert [len(record.value) for record in await read(consumer, 1)] == [1000]


async def test_an_unknown_topic_is_not_created_by_using_it(clients, unique):
    producer = await clients.producer(request_timeout_ms=2000)
    with pytest.raises((UnknownTopicOrPartitionError, asyncio.TimeoutError)):
        await asyncio.wait_for(producer.send_and_wait(unique, b"x"), 10)
    admin = await clients.admin()
    assert unique not in await admin.list_topics()


async def test_reading_outside_the_log_starts_over(clients, read, unique):
    await clients.create_topic(unique)
    producer = await clients.producer()
    await producer.send_and_wait(unique, b"only")
    consumer = await clients.consumer(unique)
    await read(consumer, 1)
    consumer.seek(TopicPartition(unique, 0), 1_000)
    (record,) = await read(consumer, 1)
    assert record.offset == 0


async def test_what_a_reader_gathers_comes_when_it_is_enough(clients, unique):
    await clients.create_topic(unique, 2)
    producer = await clients.producer()
    consumer = await clients.consumer(
        unique, fetch_min_bytes=50_000, fetch_max_wait_ms=20_000, request_timeout_ms=60_000
    )
    partitions = [TopicPartition(unique, number) for number in range(2)]
    reading = asyncio.ensure_future(consumer.getmany(*partitions, timeout_ms=60_000))
    for number in range(6):
        await producer.send_and_wait(unique, b"x" * 10_000, partition=number % 2)
    found = await reading
    assert sum(len(r.value) for records in found.values() for r in records) >= 50_000


async def test_what_a_reader_gathers_comes_when_its_time_is_up(clients, read, unique):
    await clients.create_topic(unique, 2)
    producer = await clients.producer()
    consumer = await clients.consumer(unique, fetch_min_bytes=50_000, fetch_max_wait_ms=500)
    for number in range(4):
        await producer.send_and_wait(unique, b"%d" % number, partition=number % 2)
    assert sorted(record.value for record in await read(consumer, 4)) == [b"0", b"1", b"2", b"3"]
