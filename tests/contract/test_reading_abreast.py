"""Hours of crawls and signals are read in the order of their times, on both brokers."""

import time

import numpy as np
from aiokafka import TopicPartition

from shared.runtime.abreast import SLACK_SECONDS, Abreast

HOUR = 3_600.0
A_POLL = 60


async def send_backlog(producer, topic, times, partition):
    for at in times.tolist():
        value = str(at).encode()
        await producer.send(topic, value, partition=partition, timestamp_ms=round(at * 1e3))
    await producer.flush()


def times_of(records):
    return [record.timestamp / 1e3 for record in records]


async def test_a_backlog_is_read_in_order_of_time(clients, unique):
    crawls, signals = f"{unique}-a-crawls", f"{unique}-b-signals"
    for topic in (crawls, signals):
        await clients.create_topic(topic, 2)
    producer = await clients.producer()
    rng, begin = np.random.default_rng(3), time.time() - HOUR
    written = {
        TopicPartition(topic, partition): np.sort(begin + HOUR / 2 * rng.random(count))
        for topic, count in ((crawls, 1500), (signals, 100))
        for partition in (0, 1)
    }
    for tp, times in written.items():
        await send_backlog(producer, tp.topic, times, tp.partition)
    consumer = await clients.consumer(auto_offset_reset="earliest")
    consumer.assign(list(written))
    abreast = Abreast({crawls, signals})

    left = {tp: times.round(3).tolist() for tp, times in written.items()}
    rounds = 0
    while any(left.values()):
        polled = await consumer.getmany(timeout_ms=200, max_records=A_POLL)
        fetched = {tp: records for tp, records in polled.items() if records}
        await abreast.hold_back(consumer, fetched)
        for tp, records in fetched.items():
            assert times_of(records) == left[tp][: len(records)]
            del left[tp][: len(records)]
        for partition in (0, 1):
            here = [tp for tp in fetched if tp.partition == partition]
            newest = max((times_of(fetched[tp])[-1] for tp in here), default=0.0)
            waiting = [
                times[0] for tp, times in left.items() if tp.partition == partition and times
            ]
            assert newest <= min(waiting, default=newest) + SLACK_SECONDS + 0.002
        rounds += 1
    # The topics take turns, but not at each record.
    assert rounds < 2 * 1600 / 4
    await abreast.hold_back(consumer, {})
    assert abreast._parts == {}


async def test_what_has_just_come_waits_for_nothing(clients, unique):
    crawls, signals = f"{unique}-a-crawls", f"{unique}-b-signals"
    for topic in (crawls, signals):
        await clients.create_topic(topic, 1)
    producer = await clients.producer()
    consumer = await clients.consumer(auto_offset_reset="earliest")
    tps = [TopicPartition(crawls, 0), TopicPartition(signals, 0)]
    consumer.assign(tps)
    consumer.pause(tps[1])
    for topic in (crawls, signals):
        await producer.send_and_wait(topic, b"now", partition=0)
    fetched = {}
    while not fetched:
        fetched = await consumer.getmany(timeout_ms=200)
    await Abreast({crawls, signals}).hold_back(consumer, fetched)
    assert list(fetched) == tps[:1]
