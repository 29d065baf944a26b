"""A producer that may not send keeps what it has, and sends it when it may."""

import asyncio

from aiokafka import AIOKafkaConsumer

from shared.runtime.membership import Membership, hold_back


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

        async def until_sure() -> None:
            while not membership.is_sure:
                await asyncio.sleep(0.02)

        await asyncio.wait_for(until_sure(), 30)
    finally:
        await consumer.stop()
