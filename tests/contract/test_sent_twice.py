"""A batch whose answer got lost is sent again: it is stored once, and answered as it is stored."""

import asyncio
import contextlib

import pytest
from aiokafka.errors import RequestTimedOutError
from apache import OWN_ONCE

LONG_AGO = 1_000_000
"""Milliseconds, as the producer says."""


@contextlib.contextmanager
def first_answer_lost(client, meanwhile=None):
    """The list is of what is answered to what is produced: offset and time; of the first answer
    the producer never hears."""
    send, answers = client.send, []

    async def send_and_lose(node, request, **more):
        answer = await send(node, request, **more)
        if type(request).__name__.startswith("Produce"):
            [(_, [(_, error, offset, timestamp, *_)])] = answer.topics
            assert error == 0
            answers.append((offset, timestamp))
            if len(answers) == 1:
                if meanwhile is not None:
                    await meanwhile()
                raise RequestTimedOutError
        return answer

    client.send = send_and_lose
    yield answers
    client.send = send


@pytest.mark.parametrize("kind", ["LogAppendTime", "CreateTime"])
async def test_the_second_answer_has_the_time_of_the_record(clients, read, unique, kind):
    await clients.create_topic(unique, message_timestamp_type=kind, retention_ms="-1")
    producer = await clients.producer(enable_idempotence=True)
    with first_answer_lost(producer.client) as answers:
        told = await producer.send_and_wait(unique, b"once", timestamp_ms=LONG_AGO)
    await producer.send_and_wait(unique, b"after")
    record, after = await read(await clients.consumer(unique), 2)
    assert (record.value, after.value) == (b"once", b"after")
    assert len(answers) == 2
    assert answers[-1] == (told.offset, told.timestamp) == (record.offset, record.timestamp)
    assert (record.timestamp == LONG_AGO) == (kind == "CreateTime")


@pytest.mark.slow(2)
@OWN_ONCE
async def test_a_broker_that_was_killed_in_between_knows_the_time_still(
    own_broker, connect, read, unique
):
    async def restart():
        await asyncio.to_thread(own_broker.kill)
        await asyncio.to_thread(own_broker.start)

    clients = connect(own_broker.bootstrap_servers)
    await clients.create_topic(unique, message_timestamp_type="LogAppendTime")
    producer = await clients.producer(enable_idempotence=True, request_timeout_ms=60_000)
    with first_answer_lost(producer.client, restart) as answers:
        await producer.send_and_wait(unique, b"once", timestamp_ms=LONG_AGO)
    [record] = await read(await clients.consumer(unique), 1)
    first, second = answers
    assert first == second == (record.offset, record.timestamp)
