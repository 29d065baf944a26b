"""The publisher: where messages go, and what a dead letter carries."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from shared.contracts.codec import decode
from shared.contracts.identity import shard_of
from shared.contracts.messages import Bandwidth, PageSignal
from shared.contracts.topics import BANDWIDTH, GLOBAL_KEY, PAGE_SIGNALS
from shared.runtime.publisher import LETTERS_A_TURN, Publisher, filled_batches
from shared.runtime.settings import Settings


class Producer:
    """Remembers what was sent."""

    def __init__(self):
        self.sent = []
        self.batches = []
        self.refuses = None
        self.partitions = 8

    async def partitions_for(self, topic):
        return set(range(self.partitions))

    async def send(self, topic, value, *, key, partition, headers, timestamp_ms):
        assert key is not None or value is not None, "as aiokafka does"
        self.sent.append(SimpleNamespace(**locals()))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def create_batch(self):
        return Batch()

    async def send_batch(self, batch, topic, *, partition):
        self.batches.append((topic, partition, batch.messages))
        done = asyncio.get_running_loop().create_future()
        if self.refuses is not None:
            done.set_exception(self.refuses)
        else:
            done.set_result(SimpleNamespace(offset=0))
        return done

    async def flush(self):
        await asyncio.sleep(0)


class Batch:
    """Has room for two."""

    def __init__(self):
        self.messages = []

    def append(self, *, timestamp, key, value):
        if len(self.messages) == 2:
            return None
        self.messages.append((key, value))
        return object()


@pytest.fixture
def publisher():
    made = Publisher(Settings(topic_prefix="t-", partitions=8))
    made._producer = Producer()
    return made


def test_the_records_of_batches_are_of_the_machines_time():
    class Batches:
        def create_batch(self):
            return BatchBuilder(120, 0)

    begin = int(time.time() * 1000)
    filled = filled_batches(Batches(), [(b"k%d" % n, b"v" * 20) for n in range(9)])
    read = [r for batch in filled for r in MemoryRecords(bytes(batch._build())).next_batch()]
    assert len(filled) > 1
    assert [record.key for record in read] == [b"k%d" % n for n in range(9)]
    assert all(begin <= record.timestamp <= time.time() * 1000 for record in read)


async def test_a_hosts_message_goes_to_its_shard_under_its_host(publisher):
    message = PageSignal(1, "https://a.example/", "a.example", "s", 5.0)
    await publisher.send_for_host(PAGE_SIGNALS, "a.example", message)
    [sent] = publisher.producer.sent
    assert (sent.topic, sent.key) == ("t-page-signals", b"a.example")
    assert sent.partition == shard_of("a.example", 8)
    assert decode(PageSignal, sent.value) == message


async def test_a_host_goes_where_it_belongs_when_shards_were_added(publisher):
    publisher.producer.partitions = 24
    for number in range(30):
        host = f"h{number}.example"
        await publisher.send_for_host(PAGE_SIGNALS, host, Bandwidth(1.0))
        assert publisher.producer.sent[-1].partition == shard_of(host, 24)


async def test_a_global_message_has_one_key_and_one_partition(publisher):
    await publisher.send_global(BANDWIDTH, Bandwidth(3.0))
    [sent] = publisher.producer.sent
    assert (sent.topic, sent.key, sent.partition) == ("t-bandwidth", GLOBAL_KEY, 0)


async def test_a_dead_letter_is_the_message_as_it_came_with_where_and_why(publisher):
    record = SimpleNamespace(
        topic="t-signals", partition=3, offset=77, key=b"k", value=b"\xff{", timestamp=0, headers=()
    )
    await publisher.dead_letter(record, "ingester", "not JSON: \ud800" + "x" * 5000)
    [sent] = publisher.producer.sent
    headers = dict(sent.headers)
    assert (sent.topic, sent.key, sent.value) == ("t-dead-letters", b"k", b"\xff{")
    assert headers["topic"] == b"t-signals"
    assert (headers["partition"], headers["offset"]) == (b"3", b"77")
    assert headers["stage"] == b"ingester"
    assert headers["error"].startswith(b"not JSON: ?")
    assert len(headers["error"]) == 1000


async def test_many_messages_are_queued_in_full_batches_each_partition_in_order(publisher):
    first, second = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], [(b"c", b"4")]
    await publisher.queue_batches({("signals", 1): first, ("signals", 5): second})
    assert publisher.producer.batches == [
        ("t-signals", 1, first[:2]),
        ("t-signals", 1, first[2:]),
        ("t-signals", 5, second),
    ]
    await publisher.flush()


async def test_what_was_queued_and_not_delivered_shows_at_the_next_flush(publisher):
    publisher.producer.refuses = KafkaTimeoutError()
    await publisher.queue_batches({("signals", 1): [(b"a", b"1")]})
    with pytest.raises(KafkaTimeoutError):
        await publisher.flush()
    # It is told once: what is sent again is delivered.
    publisher.producer.refuses = None
    await publisher.queue_batches({("signals", 1): [(b"a", b"1")]})
    await publisher.flush()


async def test_before_its_start_it_says_so():
    with pytest.raises(RuntimeError, match="not started"):
        await Publisher(Settings()).send(BANDWIDTH, None, b"")


async def test_a_record_with_neither_key_nor_value_is_set_aside_too(publisher):
    record = SimpleNamespace(
        topic="t-signals", partition=3, offset=77, key=None, value=None, timestamp=0, headers=()
    )
    await publisher.dead_letter(record, "ingester", "empty")
    [sent] = publisher.producer.sent
    assert (sent.key, sent.value) == (b"", None)


async def test_others_get_their_turn_between_many_dead_letters(publisher):
    record = SimpleNamespace(
        topic="t-signals", partition=3, offset=7, key=b"", value=b"", timestamp=0, headers=()
    )
    turns = []

    async def other():
        while True:
            turns.append(len(publisher.producer.sent))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(1000):
        await publisher.dead_letter(record, "ingester", "bad")
    task.cancel()
    assert len(set(turns)) >= 1000 // LETTERS_A_TURN - 1


async def test_where_nobody_answers_nothing_is_left_behind(monkeypatch):
    class Away:
        stopped = False

        async def start(self):
            raise KafkaConnectionError

        async def stop(self):
            self.stopped = True

    producer = Away()
    monkeypatch.setattr("shared.runtime.publisher.make_producer", lambda _settings: producer)
    with pytest.raises(KafkaConnectionError):
        await Publisher(Settings()).start()
    assert producer.stopped
