"""Records that go while a batch is gathered: none of them goes without a word.

The readers are real; the broker and its client are the simulator's.
"""

import asyncio
from unittest import mock

import pytest
from aiokafka import TopicPartition
from simulated_reading import SimulatedReading

import shared.runtime.consumer
import shared.runtime.group_reading
from services.ingester.reading import SignalReader
from services.verify.simulation.kafka.broker import Given
from shared.contracts.topics import PAGE_SIGNALS, SIGNALS
from shared.runtime.consumer import BatchConsumer
from shared.runtime.continuity import Continuity
from shared.runtime.settings import Settings
from shared.runtime.slices import read_on

RECORDS, KEPT_FROM = 20, 17


class Said:
    """Where structlog writes depends on who has set it before."""

    def __init__(self):
        self.gone = set()

    def error(self, _event, *, first_offset, last_offset, **_):
        self.gone |= set(range(first_offset, last_offset + 1))


async def yes():
    return True


class Handler:
    def __init__(self):
        self.offsets = set()

    async def assigned(self, _partitions):
        return {}

    async def revoked(self, _partitions):
        pass

    async def handle(self, batch):
        for partitions in batch.values():
            for records in partitions.values():
                self.offsets |= {record.offset for record in records}


@pytest.fixture
def said(monkeypatch):
    made = Said()
    monkeypatch.setattr("shared.runtime.continuity.log", made)
    return made


def read_by(make, topic, module, monkeypatch):
    """Let a reader read a partition of which most goes between two slices of its first batch."""
    simulated = SimulatedReading(monkeypatch, module, seed=1)
    log = simulated.broker.partition(topic.name, 0)
    log.append([Given(b"host", b"{}", 0)] * RECORDS, 0.0)

    async def read_on_while_they_go(reader, fetched, *limits):
        if fetched and not log.begin:
            log.keep_from(KEPT_FROM)
        await read_on(reader, fetched, *limits)

    monkeypatch.setattr(module, "read_on", read_on_while_they_go)

    async def read():
        reader, stopping = make(), asyncio.Event()
        await reader.start()
        reading = asyncio.ensure_future(reader.run(stopping))
        await asyncio.sleep(30)
        stopping.set()
        await reading
        await reader.stop()

    simulated.run(read())
    assert log.begin == KEPT_FROM, "the records went in the middle of a batch"


def test_a_batch_says_what_it_has_read_in_vain(monkeypatch, said):
    handler = Handler()
    read_by(
        lambda: BatchConsumer(Settings(partitions=1), "group", (PAGE_SIGNALS,), handler),
        PAGE_SIGNALS,
        shared.runtime.consumer,
        monkeypatch,
    )
    assert handler.offsets == set(range(KEPT_FROM, RECORDS))
    assert said.gone == set(range(KEPT_FROM))


def test_what_went_before_a_partition_is_read_counts_as_reached(monkeypatch, said):
    reached = []

    async def note(positions):
        reached.append(positions)

    read_by(
        lambda: BatchConsumer(
            *(Settings(partitions=1), "group", (PAGE_SIGNALS,), Handler()),
            reached=note,
            written_out=yes,
        ),
        PAGE_SIGNALS,
        shared.runtime.consumer,
        monkeypatch,
    )
    assert {(PAGE_SIGNALS.name, 0): KEPT_FROM} in reached


def test_who_waits_until_all_is_written_out_may_write_again_after_an_absence(monkeypatch, said):
    """What is sent is held back until a member is sure of its partitions again."""
    handler, readers, waits = Handler(), [], []

    async def once_it_may_be_sent():
        if not waits:
            readers[0]._membership.was_unsure = True  # as when a broker is back
        waits.append(None)
        assert len(waits) < 20, "it waits for what waits for it"
        await asyncio.sleep(0.1)
        return readers[0].is_sure

    def make():
        settings = Settings(partitions=1)
        readers.append(
            BatchConsumer(
                *(settings, "group", (PAGE_SIGNALS,), handler), written_out=once_it_may_be_sent
            )
        )
        return readers[0]

    read_by(make, PAGE_SIGNALS, shared.runtime.consumer, monkeypatch)
    assert handler.offsets == set(range(KEPT_FROM, RECORDS))
    assert waits


def test_an_ingester_says_what_it_has_read_in_vain(monkeypatch, said):
    offsets = set()

    async def handle(records):
        offsets.update(record.offset for record in records)

    read_by(
        lambda: SignalReader(Settings(partitions=1), handle),
        SIGNALS,
        shared.runtime.group_reading,
        monkeypatch,
    )
    assert offsets == set(range(KEPT_FROM, RECORDS))
    assert said.gone == set(range(KEPT_FROM))


async def test_what_lies_before_a_gap_that_was_said_is_said_too(said):
    partition = TopicPartition("t", 0)
    client = mock.Mock(beginning_offsets=mock.AsyncMock(return_value={partition: 30}))
    continuity = Continuity(client, {"t": "t"})

    for wanted, gone in ((29, {29}), (21, set(range(21, 30))), (25, set(range(21, 30)))):
        assert await continuity.starts({partition: wanted}) == {partition: 30}
        assert said.gone == gone
