"""Topics are created, described and deleted as Kafka does, on both brokers."""

import asyncio
import time

import pytest
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, KafkaError
from apache import OWN_ONCE

UNKNOWN_TOPIC = 3
ALREADY_EXISTS, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_CONFIG = 36, 17, 37, 40


async def create(admin, topic: NewTopic, *, validate_only: bool = False) -> int:
    answer = await admin.create_topics([topic], validate_only=validate_only)
    return answer.topic_errors[0][1]


async def test_a_topic_has_the_partitions_and_configs_it_was_made_with(clients, unique):
    configs = {"cleanup_policy": "compact", "retention_ms": "60000"}
    await clients.create_topic(unique, 7, **configs)
    admin = await clients.admin()
    (topic,) = await admin.describe_topics([unique])
    assert sorted(part["partition"] for part in topic["partitions"]) == list(range(7))
    resource = ConfigResource(ConfigResourceType.TOPIC, unique)
    (answer,) = await admin.describe_configs([resource])
    values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert values["cleanup.policy"] == "compact"
    assert values["retention.ms"] == "60000"


async def test_a_topic_is_altered_while_it_is_in_use(clients, unique):
    await clients.create_topic(unique, 2, retention_ms="60000", cleanup_policy="delete")
    admin = await clients.admin()
    wanted = {"message.timestamp.type": "LogAppendTime", "retention.ms": "70000"}
    resource = ConfigResource(ConfigResourceType.TOPIC, unique, wanted)
    (answer,) = await admin.alter_configs([resource])
    assert [code for code, *_ in answer.resources] == [0]
    producer = await clients.producer()
    made_up, done = 1000, None
    while done is None or done.timestamp_type != 1:  # Apache Kafka tells its logs a bit later
        done = await producer.send_and_wait(unique, b"x", partition=1, timestamp_ms=made_up)
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, unique)])
    own = {entry[0]: entry[1] for entry in answer.resources[0][4] if entry[3] == 1}
    assert own == wanted, "what is not said again is gone"


@pytest.mark.parametrize(
    ("name", "setting", "error"),
    [
        ("", {"no.such.setting": "1"}, INVALID_CONFIG),
        ("", {"retention.ms": "soon"}, INVALID_CONFIG),
        ("no-such-topic", {"retention.ms": "1000"}, UNKNOWN_TOPIC),
    ],
)
async def test_what_cannot_be_altered_is_refused(clients, unique, name, setting, error):
    await clients.create_topic(unique)
    admin = await clients.admin()
    resource = ConfigResource(ConfigResourceType.TOPIC, name or unique, setting)
    (answer,) = await admin.alter_configs([resource])
    assert [code for code, *_ in answer.resources] == [error]


@OWN_ONCE
async def test_an_altered_topic_stays_so_through_a_restart(own_broker, connect, unique):
    clients = connect(own_broker.bootstrap_servers)
    await clients.create_topic(unique)
    resource = ConfigResource(ConfigResourceType.TOPIC, unique, {"retention.ms": "70000"})
    await (await clients.admin()).alter_configs([resource])
    own_broker.stop()
    own_broker.start()
    admin = await clients.admin()
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, unique)])
    values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert values["retention.ms"] == "70000"


async def test_a_topic_is_made_once(clients, unique):
    await clients.create_topic(unique, 4)
    admin = await clients.admin()
    assert await create(admin, NewTopic(unique, 8, 1)) == ALREADY_EXISTS
    (topic,) = await admin.describe_topics([unique])
    assert len(topic["partitions"]) == 4


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "error"),
    [
        ("bad name!", 1, {}, INVALID_TOPIC),
        ("..", 1, {}, INVALID_TOPIC),
        ("no-partitions", 0, {}, INVALID_PARTITIONS),
        ("bad-config", 1, {"no.such.setting": "1"}, INVALID_CONFIG),
        ("bad-value", 1, {"retention.ms": "soon"}, INVALID_CONFIG),
    ],
)
async def test_what_cannot_be_made_is_refused(clients, name, partitions, configs, error):
    admin = await clients.admin()
    topic = NewTopic(name, partitions, 1, topic_configs=configs)
    assert await create(admin, topic) == error
    assert name not in await admin.list_topics()


async def test_validation_alone_makes_nothing(clients, unique):
    admin = await clients.admin()
    assert await create(admin, NewTopic(unique, 2, 1), validate_only=True) == 0
    assert unique not in await admin.list_topics()


async def test_a_topic_grows_but_never_shrinks(clients, unique):
    await clients.create_topic(unique, 2)
    admin = await clients.admin()
    await admin.create_partitions({unique: NewPartitions(3)})
    with pytest.raises(InvalidPartitionsError):
        await admin.create_partitions({unique: NewPartitions(2)})
    await clients.until_partitions(unique, 3)


async def test_a_deleted_topic_comes_back_empty(clients, read, unique):
    await clients.create_topic(unique)
    producer = await clients.producer()
    await producer.send_and_wait(unique, b"old")
    admin = await clients.admin()
    await admin.delete_topics([unique])
    while unique in await admin.list_topics():
        await asyncio.sleep(0.05)
    await clients.create_topic(unique)
    fresh = await clients.producer()
    await fresh.send_and_wait(unique, b"new")
    consumer = await clients.consumer(unique)
    (record,) = await read(consumer, 1)
    assert (record.value, record.offset) == (b"new", 0)


async def test_compaction_keeps_the_last_message_of_each_key(clients, read, unique):
    await clients.create_topic(
        unique,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="200",
        delete_retention_ms="1",
    )
    producer = await clients.producer()
    for number in range(30):
        key = b"key%d" % (number % 3)
        await producer.send_and_wait(unique, b"%d" % number, key=key)
    await producer.send_and_wait(unique, None, key=b"key0")
    seen: list[tuple[int, bytes]] = []
    nudges = 0
    while not seen or len(seen) - nudges > 3:  # old segments are sealed by newer messages
        await asyncio.sleep(0.3)
        nudges += 1
        await producer.send_and_wait(unique, b"nudge", key=b"nudge%d" % nudges)
        end = nudges + 30
        consumer = await clients.consumer(unique)
        seen = []
        while not seen or seen[-1][0] < end:
            seen += [(record.offset, record.value) for record in await read(consumer, 1)]
        await consumer.stop()
    latest = dict(seen)
    assert (latest[28], latest[29]) == (b"28", b"29")
    assert 27 not in latest  # key0 before its tombstone


@pytest.mark.slow(1)
async def test_what_compaction_leaves_of_a_batch_has_the_brokers_time_still(clients, read, unique):
    compacted_soon = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "200",
    }
    await clients.create_topic(unique, message_timestamp_type="LogAppendTime", **compacted_soon)
    producer = await clients.producer(linger_ms=200)
    sent = [await producer.send(unique, b"x", key=b"%d" % n, timestamp_ms=1000) for n in range(3)]
    stored = [await future for future in sent]
    assert len({done.timestamp for done in stored}) == 1, "they are one batch"
    offsets, nudges = {0, 1, 2}, 0
    while 1 in offsets:
        await producer.send_and_wait(unique, b"again", key=b"1")
        nudges += 1
        consumer = await clients.consumer(unique)
        found = []
        while not found or found[-1].offset < 2 + nudges:
            found += await read(consumer, 1)
        await consumer.stop()
        offsets = {record.offset for record in found}
    assert {0, 2} <= offsets
    assert {(r.timestamp, r.timestamp_type) for r in found[:2]} == {(stored[0].timestamp, 1)}


async def test_a_compacted_topic_refuses_a_message_without_key(clients, unique):
    await clients.create_topic(unique, cleanup_policy="compact")
    producer = await clients.producer()
    with pytest.raises(KafkaError):
        await producer.send_and_wait(unique, b"keyless")


async def test_a_topic_may_stamp_records_with_their_arrival(clients, unique):
    await clients.create_topic(unique, 1, message_timestamp_type="LogAppendTime")
    producer = await clients.producer(compression_type="gzip")
    before = int(time.time() * 1000)
    made_up = before - 10_000_000
    sent = [
        await producer.send(unique, b"%d" % n, partition=0, timestamp_ms=made_up + n)
        for n in range(20)
    ]
    acknowledged = [await future for future in sent]
    consumer = await clients.consumer(unique)
    got = [await consumer.getone() for _ in range(20)]
    assert [record.value for record in got] == [b"%d" % n for n in range(20)]
    assert all(before - 1000 <= record.timestamp <= before + 60_000 for record in got)
    assert {record.timestamp_type for record in got} == {1}
    assert [done.timestamp for done in acknowledged] == [record.timestamp for record in got]
