"""A stream that does not continue what was read of it: said and counted, never skipped silently."""

import asyncio
import uuid
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from group_member import member, until
from prometheus_client import REGISTRY
from workers import settings_for

from services.ingester.reading import SignalReader
from shared.contracts.identity import shard_of
from shared.contracts.messages import PageSignal
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, SIGNALS
from shared.runtime import continuity
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher

HOST = "host.example"


@pytest.fixture
async def settings(apache_kafka, monkeypatch):
    monkeypatch.setattr(continuity, "LOOK_SECONDS", 0.2)
    made = settings_for(
        apache_kafka.bootstrap_servers,
        f"gap-{uuid.uuid4().hex[:8]}",
        kafka_session_timeout_seconds=6.0,
    )
    await ensure_topics(made)
    return made


@pytest.fixture
async def admin(apache_kafka):
    client = AIOKafkaAdminClient(bootstrap_servers=apache_kafka.bootstrap_servers)
    await client.start()
    yield client
    await client.close()


def place(settings):
    """Where all the records of these tests are."""
    return TopicPartition(settings.topic(PAGE_SIGNALS.name), shard_of(HOST, settings.partitions))


async def yes():
    return True


async def publish(publisher, count):
    for _ in range(count):
        signal = PageSignal("0" * 32, f"https://{HOST}/", HOST, "cms", 1.0)
        await publisher.send_for_host(PAGE_SIGNALS, HOST, signal)
    await publisher.flush()


async def delete_before(admin, tp, offset):
    await admin.delete_records({tp: RecordsToDelete(before_offset=offset)})


async def make_anew(admin, settings, topic):
    name = settings.topic(topic.name)
    await admin.delete_topics([name])
    async with asyncio.timeout(30):
        while name in await admin.list_topics():
            await asyncio.sleep(0.1)
        made = NewTopic(name, settings.partitions, 1)
        while (await admin.create_topics([made])).topic_errors[0][1]:
            await asyncio.sleep(0.1)


class Durable:
    """A handler with its positions, that can be kept waiting."""

    def __init__(self, positions=None):
        self.positions = {} if positions is None else positions
        self.offsets = []
        self.loads = []
        self.owned = set()
        self.there = asyncio.Event()
        self.there.set()
        self.is_waiting = False

    async def assigned(self, partitions):
        self.loads.append(partitions)
        self.owned |= partitions
        return dict(self.positions)

    async def revoked(self, partitions):
        self.owned -= partitions

    async def handle(self, batch):
        self.is_waiting = True
        await self.there.wait()
        self.is_waiting = False
        for topic, partitions in batch.items():
            for partition, records in partitions.items():
                self.offsets += [record.offset for record in records]
                self.positions[topic, partition] = records[-1].offset + 1


class Known:
    """The ids of topics, as a database would keep them."""

    def __init__(self):
        self.ids = {}

    async def note(self, ids):
        self.ids = dict(ids) | self.ids
        return self.ids


def gaps():
    labels = {"topic": PAGE_SIGNALS.name}
    return REGISTRY.get_sample_value("freshet_stream_gap_records_total", labels) or 0


class Log:
    """Remembers errors; where structlog writes depends on who has set it before."""

    def __init__(self):
        self.lines = []

    def error(self, event, **line):
        self.lines.append({"event": event} | line)


async def test_records_that_are_gone_at_the_start_are_counted_and_said(
    settings, publisher, admin, monkeypatch
):
    log = Log()
    monkeypatch.setattr("shared.runtime.continuity.log", log)
    tp, before = place(settings), gaps()
    await publish(publisher, 100)
    handler = Durable({(PAGE_SIGNALS.name, tp.partition): 30})
    await delete_before(admin, tp, 70)
    async with member(settings, handler):
        await until(lambda: len(handler.offsets) == 30)
    assert handler.offsets == list(range(70, 100))
    assert gaps() - before == 40
    [line] = log.lines
    assert line["event"] == "records are gone that were never read"
    assert (line["first_offset"], line["last_offset"]) == (30, 69)


async def test_a_log_that_begins_later_is_no_gap_for_who_has_read_nothing(
    settings, publisher, admin
):
    before = gaps()
    await publish(publisher, 100)
    await delete_before(admin, place(settings), 70)
    handler = Durable()
    async with member(settings, handler):
        await until(lambda: len(handler.offsets) == 30)
    assert gaps() == before


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("reloads", [False, True])
async def test_records_that_go_while_a_reader_waits_are_counted(
    settings, publisher, admin, reloads, beside
):
    tp, before = place(settings), gaps()
    handler, written_out = Durable(), yes if reloads else None
    async with member(settings, handler, written_out=written_out, loads_beside=beside) as one:
        await until(lambda: one.settled and len(one.partitions) == settings.partitions)
        await publish(publisher, 10)
        await until(lambda: len(handler.offsets) == 10)
        one._consumer.pause(tp)  # a reader that is slower than retention
        await publish(publisher, 90)
        await delete_before(admin, tp, 60)
        one._consumer.seek(tp, 10)
        one._consumer.resume(tp)
        await until(lambda: len(handler.offsets) == 50)
        assert handler.offsets == [*range(10), *range(60, 100)]
        assert gaps() - before == 50
        # Where the state is another worker's, the partition is loaded anew, and only that.
        anew = [{tp.partition}] if reloads else []
        assert handler.loads == [set(range(settings.partitions)), *anew]
        assert handler.owned == set(range(settings.partitions)) == set(one.partitions)
        await publish(publisher, 10)
        await until(lambda: handler.offsets[-1] == 109)


async def test_an_ingester_says_what_was_gone_before_it_was_read(settings, publisher, admin):
    labels = {"topic": SIGNALS.name}
    tp = TopicPartition(settings.topic(SIGNALS.name), 0)

    def count():
        return REGISTRY.get_sample_value("freshet_stream_gap_records_total", labels) or 0

    async def publish_signals(number):
        for _ in range(number):
            await publisher.send(SIGNALS, None, b"{}", partition=0)
        await publisher.flush()

    before, offsets = count(), Offsets()
    await publish_signals(10)
    async with ingesting(settings, offsets):
        await until(lambda: len(offsets) == 10)
    await publish_signals(90)
    await delete_before(admin, tp, 60)
    async with ingesting(settings, offsets):
        await until(lambda: len(offsets) == 50)
        assert offsets == [*range(10), *range(60, 100)]
        assert count() - before == 50
        # ... and under its hands.
        reader = offsets.reader
        reader._consumer.pause(tp)
        await publish_signals(50)
        await delete_before(admin, tp, 130)
        reader._consumer.seek(tp, 100)
        reader._consumer.resume(tp)
        await until(lambda: len(offsets) == 70)
        assert offsets[-20:] == list(range(130, 150))
        assert count() - before == 80
        # A log that has lost what it had is left alone.
        reader._consumer.seek(tp, 1_000)
        await until(lambda: reader.halted is not None)
        assert "partition 0 of signals was read up to offset 1000" in reader.halted


class Offsets(list):
    """What an ingester handled, and its reader."""

    reader = None


@asynccontextmanager
async def ingesting(settings, offsets):
    async def handle(records):
        offsets.extend(record.offset for record in records)

    reader = offsets.reader = SignalReader(settings, handle)
    await reader.start()
    stopping = asyncio.Event()
    running = asyncio.create_task(reader.run(stopping))
    try:
        await until(lambda: reader.settled)
        yield
    finally:
        stopping.set()
        await asyncio.wait([running], timeout=10)
        running.cancel()
        await reader.stop()


async def test_a_reader_stops_before_a_log_that_has_lost_what_it_had_read(settings, publisher):
    tp = place(settings)
    await publish(publisher, 50)
    handler = Durable({(PAGE_SIGNALS.name, tp.partition): 80})
    async with member(settings, handler) as one:
        await until(lambda: one.halted is not None)
        assert f"partition {tp.partition} of page-signals was read up to offset 80" in one.halted
        assert "ends at 50" in one.halted
        assert "freshet positions" in one.halted
        assert not one.settled
        assert handler.owned == set()
        labels = {"topic": PAGE_SIGNALS.name}
        assert REGISTRY.get_sample_value("freshet_stream_broken", labels) == 1
        # What comes now has the offsets of what was read before: it is left alone.
        await publish(publisher, 100)
        await asyncio.sleep(1.0)
    assert handler.offsets == []


@pytest.mark.parametrize("runs", [True, False], ids=["under its reader", "while nobody reads"])
async def test_a_reader_stops_before_a_topic_that_was_made_anew(settings, publisher, admin, runs):
    known, handler = Known(), Durable()
    await publish(publisher, 20)
    async with member(settings, handler, known_topics=known) as one:
        await until(lambda: len(handler.offsets) == 20)
        assert set(known.ids) == {PAGE_SIGNALS.name, CRAWL_OUTCOMES.name}
        if runs:
            await make_anew(admin, settings, PAGE_SIGNALS)
            await until(lambda: one.halted is not None)
            assert "page-signals is another topic" in one.halted
            return
    await make_anew(admin, settings, PAGE_SIGNALS)
    # As many as were read, and more: by its offsets it could be the old one.
    other = Publisher(settings)
    await other.start()
    await publish(other, 40)
    await other.stop()
    async with member(settings, handler, known_topics=known) as one:
        await until(lambda: one.halted is not None)
        assert "page-signals is another topic" in one.halted
    assert handler.offsets == list(range(20))
