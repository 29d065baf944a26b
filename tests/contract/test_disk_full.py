"""The local broker on a full disk: clear errors, what is stored can be read, nothing breaks.

The disk is filled by a limit on how far the broker's process may write into any file, its own log
too. It is lifted while the broker runs, as when somebody has made room.
"""

import asyncio
import resource
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from deploy.local.kafka import LocalBroker

TOPIC = "full"
TP = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker(scratch_dir, unique):
    made = LocalBroker(scratch_dir / f"full-{unique}")
    made.start()
    yield made
    made.stop()


def fill_disk(broker, *, full=True):
    limit = 1 if full else resource.RLIM_INFINITY
    resource.prlimit(broker._process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@asynccontextmanager
async def started(client):
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def create_topic(broker, name):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        topic = NewTopic(name, 1, 1, topic_configs={"segment.bytes": "20000"})
        [(_, code, *_)] = (await admin.create_topics([topic])).topic_errors
        if code:
            raise for_code(code)
    finally:
        await admin.close()


async def produce(broker, values, seconds=2.0):
    """Values that the broker took."""
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=int(seconds * 1000)
    )
    taken = []
    async with started(producer):
        for value in values:
            await producer.send_and_wait(TOPIC, value, partition=0)
            taken.append(value)
    return taken


async def stored(broker):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    async with started(consumer):
        consumer.assign([TP])
        end, values, offsets = (await consumer.end_offsets([TP]))[TP], [], []
        while await consumer.position(TP) < end:
            for record in (await consumer.getmany(TP, timeout_ms=100)).get(TP, []):
                values.append(record.value)
                offsets.append(record.offset)
    assert offsets == list(range(len(values)))
    return values


async def commit(broker, offset):
    """Commit, for as long as that takes, and read what is committed."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", enable_auto_commit=False
    )
    async with started(consumer):
        consumer.assign([TP])
        await consumer.commit({TP: offset})
        return await consumer.committed(TP)


def values(kind, count=30):
    return [b"%s-%d-" % (kind, number) + b"x" * 1000 for number in range(count)]


async def test_a_full_disk_is_a_clear_error_and_no_more(broker):
    await create_topic(broker, TOPIC)
    before = await produce(broker, values(b"before"))
    fill_disk(broker)
    with pytest.raises(KafkaError):
        await produce(broker, values(b"full"))
    with pytest.raises(KafkaError):
        await create_topic(broker, "another")
    committing = asyncio.create_task(commit(broker, 3))
    assert await stored(broker) == before
    assert not committing.done()
    # Longer than the intervals at which it flushes and tidies up.
    await asyncio.sleep(3.0)
    assert broker._process.poll() is None
    fill_disk(broker, full=False)
    after = await produce(broker, values(b"after"))
    assert await stored(broker) == before + after
    assert await asyncio.wait_for(committing, 30) == 3
    log = broker.log_path.read_text()
    assert "Traceback" not in log
    broker.kill()
    broker.start()
    assert await stored(broker) == before + after


async def test_the_room_that_is_left_is_used_to_the_last_whole_batch(broker):
    """The limit falls into the middle of a batch: nothing of it stays."""
    await create_topic(broker, TOPIC)
    limit = 9_500
    resource.prlimit(broker._process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    taken = []

    async def until_full():
        for value in values(b"value"):
            taken.extend(await produce(broker, [value]))

    with pytest.raises(KafkaError):
        await until_full()
    assert 0 < len(taken) < 10
    assert await stored(broker) == taken
    broker.kill()
    broker.start()
    assert await stored(broker) == taken
    taken += await produce(broker, values(b"after"))
    assert await stored(broker) == taken
