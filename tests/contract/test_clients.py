"""The clients that Freshet's users have, librdkafka and Faust, work on both brokers."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from deploy.local.process import last_lines, spawn, stop_process

FAUST_APP = """
import faust

app = faust.App(
    "{name}", broker="kafka://{broker}", store="memory://", topic_partitions=2,
    web_enabled=False, topic_disable_leader=True, broker_session_timeout=10,
)
incoming = app.topic("{name}-in", value_type=bytes, value_serializer="raw")
outgoing = app.topic("{name}-out", value_type=bytes, value_serializer="raw")

@app.agent(incoming)
async def shout(stream):
    async for value in stream:
        await outgoing.send(key=b"key", value=value.upper())

app.main()
"""


async def test_a_faust_app_reads_and_writes(clients, read, unique, tmp_path: Path):
    for suffix in ("in", "out"):
        await clients.create_topic(f"{unique}-{suffix}", 2)
    script = tmp_path / "app.py"
    script.write_text(FAUST_APP.format(name=unique, broker=clients.bootstrap_servers))
    log_path = tmp_path / "faust.log"
    argv = [sys.executable, str(script), "--datadir", str(tmp_path), "worker", "-l", "info"]
    process = spawn(argv, log_path)
    try:
        producer = await clients.producer()
        for number in range(20):
            await producer.send_and_wait(f"{unique}-in", b"page %d" % number, partition=number % 2)
        consumer = await clients.consumer(f"{unique}-out")
        records = await asyncio.wait_for(read(consumer, 20), 60)
        assert {record.value for record in records} == {b"PAGE %d" % n for n in range(20)}
    except TimeoutError:
        pytest.fail(last_lines(log_path, 60))
    finally:
        await asyncio.to_thread(stop_process, process)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_produces_and_consumes_compressed(broker, unique, codec):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(unique, 3, 1)])[unique].result(30)
    producer = Producer(
        {**settings, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
    )
    for number in range(500):
        producer.produce(unique, b"value %d" % number, key=b"%d" % number, headers={"n": b"1"})
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            **settings,
            "group.id": unique,
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([unique])
    values, ends = set(), set()
    deadline = time.monotonic() + 60
    while (len(values) < 500 or len(ends) < 3) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error():
            ends.add(message.partition())
        elif message is not None:
            values.add(message.value())
    assert values == {b"value %d" % number for number in range(500)}
    assert ends == {0, 1, 2}  # the end of each partition is told
    committed = consumer.commit(asynchronous=False)
    assert sum(place.offset for place in committed) == 500
    since = int(time.time() * 1000) - 3_600_000
    (found,) = consumer.offsets_for_times([TopicPartition(unique, 0, since)], timeout=30)
    assert found.offset == 0
    consumer.close()


def test_librdkafka_administers_topics_and_groups(broker, unique):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(unique, 2, 1, config={"retention.ms": "1000000"})])[
        unique
    ].result(30)
    with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(unique, 2, 1)])[unique].result(30)
    found = admin.list_topics(timeout=30).topics
    while unique not in found or len(found[unique].partitions) != 2:
        found = admin.list_topics(timeout=30).topics
    producer = Producer(settings)
    producer.produce(unique, b"x", partition=1)
    producer.flush(30)
    ends = admin.list_offsets({TopicPartition(unique, 1): OffsetSpec.latest()})
    assert next(iter(ends.values())).result(30).offset == 1
    admin.delete_topics([unique])[unique].result(30)
