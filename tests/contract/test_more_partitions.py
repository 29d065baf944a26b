"""A topic that is in use gets more partitions, on both brokers."""

import asyncio

from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions
from apache import OWN_ONCE


async def add(clients, name, count) -> None:
    await (await clients.admin()).create_partitions({name: NewPartitions(count)})
    await clients.until_partitions(name, count)


async def everything(clients, read, name, count):
    """All records, by partition, in order."""
    consumer = await clients.consumer(name)
    found: dict[int, list[bytes]] = {}
    for record in await read(consumer, count):
        found.setdefault(record.partition, []).append(record.value)
    return found


async def test_an_idempotent_producer_goes_on_while_partitions_are_added(clients, read, unique):
    await clients.create_topic(unique, 2)
    producer = await clients.producer(enable_idempotence=True, acks="all", metadata_max_age_ms=200)
    wanted: dict[int, list[bytes]] = {}

    async def write(number: int, partition: int) -> None:
        value = b"%d" % number
        done = await producer.send_and_wait(unique, value, partition=partition)
        wanted.setdefault(partition, []).append(value)
        assert done.offset == len(wanted[partition]) - 1

    for number in range(20):
        await write(number, number % 2)
    growing = asyncio.create_task(add(clients, unique, 6))
    number = 20
    while not growing.done() or len(await producer.partitions_for(unique)) < 6:
        await write(number, number % 2)
        number += 1
        await asyncio.sleep(0.01)
    await growing
    for more in range(number, number + 30):
        await write(more, more % 6)
    total = sum(map(len, wanted.values()))
    assert await everything(clients, read, unique, total) == wanted


@OWN_ONCE
async def test_partitions_that_were_added_and_their_records_survive_a_kill(
    own_broker, connect, read, unique
):
    clients = connect(own_broker.bootstrap_servers)
    await clients.create_topic(unique, 2)
    producer = await clients.producer(acks="all")
    for partition in range(2):
        await producer.send_and_wait(unique, b"before", partition=partition)
    await add(clients, unique, 5)
    fresh = await clients.producer(acks="all")
    for partition in range(5):
        await fresh.send_and_wait(unique, b"after", partition=partition)
    own_broker.kill()
    own_broker.start()
    await clients.until_partitions(unique, 5)
    assert await everything(clients, read, unique, 7) == {
        0: [b"before", b"after"],
        1: [b"before", b"after"],
        2: [b"after"],
        3: [b"after"],
        4: [b"after"],
    }


async def test_many_topics_grow_with_one_request(clients, unique):
    names = [f"{unique}-{number}" for number in range(3)]
    for name in names:
        await clients.create_topic(name, 2)
    admin = await clients.admin()
    await admin.create_partitions({name: NewPartitions(8) for name in names})
    for name in names:
        await clients.until_partitions(name, 8)
    consumer = await clients.consumer()
    begins = await consumer.beginning_offsets([TopicPartition(name, 7) for name in names])
    assert set(begins.values()) == {0}
