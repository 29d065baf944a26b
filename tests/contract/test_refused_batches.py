"""What a topic refuses for a while keeps nothing back of what the same producer sends after it."""

import uuid

import pytest
from aiokafka import TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RequestTimedOutError,
)
from structlog.testing import capture_logs
from workers import settings_for

from shared.contracts.topics import DEAD_LETTERS, SIGNALS
from shared.runtime.kafka import administering, ensure_topics, make_consumer

TOPICS = (SIGNALS, DEAD_LETTERS)
LARGE = b"x" * 5_000


@pytest.fixture
async def settings(broker):
    made = settings_for(broker.bootstrap_servers, f"refused-{uuid.uuid4().hex[:8]}")
    await ensure_topics(made, TOPICS)
    return made


async def take_records_up_to(settings, size):
    """What an administrator sets for the topic of signals."""
    topic = settings.topic(SIGNALS.name)
    limit = {"max.message.bytes": str(size)}
    async with administering(settings) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, limit)])


async def sent(publisher, value, topic=SIGNALS):
    return await (await publisher.send(topic, b"k", value, partition=0))


async def stored(settings):
    """All values of the first partition of signals."""
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        tp = TopicPartition(settings.topic(SIGNALS.name), 0)
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        found = []
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [record.value for record in records]
        return found
    finally:
        await consumer.stop()


async def test_what_is_refused_keeps_nothing_back_that_comes_after_it(settings, publisher):
    await sent(publisher, b"before")
    await take_records_up_to(settings, 1_000)
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(MessageSizeTooLargeError):
                await sent(publisher, LARGE)
    [told] = [line for line in logs if line["log_level"] == "error"]
    assert told["topic"] == settings.topic(SIGNALS.name)
    await sent(publisher, b"small")
    await sent(publisher, b"elsewhere", DEAD_LETTERS)
    await take_records_up_to(settings, 1_000_000)
    await sent(publisher, LARGE)
    assert await stored(settings) == [b"before", b"small", LARGE]


async def test_what_is_stored_unheard_and_then_refused_costs_no_other_record(settings, publisher):
    client = publisher.producer.client
    send, unheard = client.send, []

    async def send_unheard(node, request, **more):
        answer = await send(node, request, **more)
        if type(request).__name__.startswith("Produce") and not unheard:
            unheard.append(request)
            await take_records_up_to(settings, 1_000)
            raise RequestTimedOutError
        return answer

    client.send = send_unheard
    with pytest.raises(MessageSizeTooLargeError):
        await sent(publisher, LARGE)
    assert unheard
    await sent(publisher, b"after")
    assert await stored(settings) == [LARGE, b"after"]


async def test_a_producer_that_the_broker_counts_otherwise_begins_anew(settings, publisher):
    await sent(publisher, b"before")
    # As if a leader had lost records of this producer.
    numbers = publisher.producer._txn_manager
    numbers._sequence_numbers[TopicPartition(settings.topic(SIGNALS.name), 0)] += 7
    with pytest.raises(OutOfOrderSequenceNumber):
        await sent(publisher, b"lost")
    await sent(publisher, b"after")
    assert await stored(settings) == [b"before", b"after"]


async def test_counts_of_records_come_to_their_end_and_go_on(settings, publisher):
    numbers = publisher.producer._txn_manager
    numbers._sequence_numbers[TopicPartition(settings.topic(SIGNALS.name), 0)] = 2**31 - 3
    await publisher.send_batches({(SIGNALS.name, 0): [(b"k", b"%d" % n) for n in range(5)]})
    for n in range(5, 8):
        await sent(publisher, b"%d" % n)
    assert await stored(settings) == [b"%d" % n for n in range(8)]
