"""A producer that may not send keeps what it has, and sends it when it may."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.runtime.aiokafka_patches import hold_back
from shared.runtime.membership import Membership


async def test_what_is_held_back_comes_later(clients, read, unique):
    await clients.create_topic(unique, 1)
    producer = await clients.producer()
    await producer.send_and_wait(unique, b"first", partition=0)
    allowed = False
    hold_back(producer, lambda: allowed)
    waiting = await producer.send(unique, b"held back", partition=0)

    done, _ = await asyncio.wait([waiting], timeout=0.5)
    consumer = await clients.consumer(unique)
    before = [record.value for record in await read(consumer, 1)]
    allowed = True
    after = await producer.send(unique, b"last", partition=0)
    await asyncio.wait_for(asyncio.gather(waiting, after), 30)

    assert not done
    assert before == [b"first"]
    assert [r.value for r in await asyncio.wait_for(read(consumer, 2), 30)] == [
        b"held back",
        b"last",
    ]


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_member_is_sure_while_the_broker_answers(clients, unique):
    await clients.create_topic(unique, 1)
    consumer = AIOKafkaConsumer(
        unique,
        bootstrap_servers=clients.bootstrap_servers,
        group_id=unique,
        session_timeout_ms=6000,
        heartbeat_interval_ms=100,
    )
    membership = Membership(6.0)
    await consumer.start()
    try:
        membership.watch(consumer)
        await until(lambda: membership.is_sure)
    finally:
        await consumer.stop()


@pytest.mark.parametrize("instance", [None, "one"])
async def test_asking_for_the_assignment_leaves_it_as_it_is(clients, unique, instance):
    await clients.create_topic(unique, 3)

    async def member(name):
        consumer = AIOKafkaConsumer(
            unique,
            bootstrap_servers=clients.bootstrap_servers,
            group_id=unique,
            group_instance_id=name,
            session_timeout_ms=6000,
            heartbeat_interval_ms=100,
        )
        await consumer.start()
        return consumer

    first = await member(instance)
    second = await member(instance and "two")
    membership = Membership(0.6)  # sure for 0.45 s only: renewed again and again
    try:
        membership.watch(first)
        membership.watch(second)
        await until(lambda: len(first.assignment()) + len(second.assignment()) == 3)
        generation, shares = first._coordinator.generation, first.assignment()
        for _ in range(5):
            membership._renewed_at = -float("inf")
            await until(lambda: membership.is_sure)

        assert first._coordinator.generation == generation
        assert first.assignment() == shares
        assert shares | second.assignment() == {TopicPartition(unique, p) for p in range(3)}
    finally:
        await second.stop()
        await first.stop()
