"""Batches that are packed: what unpacks to very much, or not at all, is one bad record, and no end.
So is one whose records are not what this client reads.

A broker counts the bytes of a batch as it is packed, and anybody may write `signals`.
"""

import asyncio
import dataclasses
import itertools
import tracemalloc

import pytest
from aiokafka.consumer import fetcher
from aiokafka.producer import message_accumulator
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
)
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from workers import settings_for

from shared.runtime import aiokafka_patches
from shared.runtime.aiokafka_patches import unpack_within_limits
from shared.runtime.batch_unpacking import MOST_UNPACKED_BYTES
from shared.runtime.kafka import make_consumer

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TP = TopicPartition("topic", 0)


def batch(codec: int, *values: bytes, offset: int = 0) -> bytes:
    made = DefaultRecordBatchBuilder(2, codec, False, -1, -1, 0, 1 << 30)
    for number, value in enumerate(values):
        made.append(number, 1000, b"key", value, [])
    packed = made.build()
    packed[:8] = offset.to_bytes(8, "big")  # what the broker does; the check sum is of the rest
    return bytes(packed)


def unpacked(*batches: bytes, checked: bool = True):
    unpack_within_limits()
    records = MemoryRecords(b"".join(batches))
    made = fetcher.PartitionRecords(TP, records, [], 0, None, None, checked, "read_uncommitted")
    return list(made)


async def read_by_consumer(bootstrap_servers, topic, count):
    consumer = make_consumer(settings_for(bootstrap_servers, topic))
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        read = []
        while len(read) < count:
            read += (await consumer.getmany(timeout_ms=500)).get(TopicPartition(topic, 0), [])
    finally:
        await consumer.stop()
    return read


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
def test_batches_are_unpacked_as_ever(codec):
    values = [b"%d" % number * 1000 for number in range(1000)]
    read = unpacked(batch(codec, *values[:500]), batch(codec, *values[500:], offset=500))
    assert [record.value for record in read] == values
    assert [record.offset for record in read] == list(range(1000))
    assert (read[0].timestamp, read[0].key, read[0].headers) == (1000, b"key", ())
    few = b"\0" * (MOST_UNPACKED_BYTES - 1000)
    assert [record.value for record in unpacked(batch(codec, few))] == [few]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_batch_that_unpacks_to_more_is_one_record_that_says_so(codec):
    bomb = batch(CODECS[codec], b"\0" * MOST_UNPACKED_BYTES, b"2", b"3", offset=1)
    first, bad, last = unpacked(batch(0, b"1"), bomb, batch(0, b"4", offset=4))
    assert (first.value, last.value, last.offset) == (b"1", b"4", 4)
    assert (bad.offset, bad.timestamp, bad.key, bad.headers) == (3, 1000, None, ())
    assert bad.value.startswith(b"not read: a batch of 3 records")


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_is_not_what_it_says_is_one_record_too(codec):
    # The broker looks into batches; what it takes, and this client does not, must stop nobody.
    packed = bytearray(batch(CODECS[codec], b"x" * 100, b"y" * 100, offset=7))
    packed[61:] = bytes(len(packed) - 61)
    bad, last = unpacked(bytes(packed), batch(0, b"4", offset=9), checked=False)
    assert (bad.offset, bad.value[:8], last.value) == (8, b"not read", b"4")


AS_BY_AIOKAFKA = fetcher.PartitionRecords.__mro__[-2]
"""Its own records of an answer, one by one, whoever has replaced them meanwhile."""


def fields_of(record):
    return [getattr(record, field.name) for field in dataclasses.fields(ConsumerRecord)]


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 1]), st.integers(0, 3))),
    start=st.integers(0, 12),
    parts=st.lists(st.integers(1, 12), max_size=12),
    piece=st.sampled_from([1, 3, aiokafka_patches.PIECE_RECORDS]),
)
def test_records_are_handed_out_as_aiokafka_does_and_the_position_follows(
    batches, start, parts, piece
):
    data, offset = [], 0
    for count, codec, gap in batches:
        offset += gap
        data.append(batch(codec, *(b"%d" % n for n in range(count)), offset=offset))
        offset += count
    unpack_within_limits()
    ours, theirs = (
        kind(TP, MemoryRecords(b"".join(data)), [], start, None, None, True, "read_committed")
        for kind in (fetcher.PartitionRecords, AS_BY_AIOKAFKA)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aiokafka_patches, "PIECE_RECORDS", piece)
        for most in [*parts, None]:
            taken = ours.take(most)
            expected = list(itertools.islice(theirs, most))
            assert list(map(fields_of, taken)) == list(map(fields_of, expected))
            if most is None or len(taken) < most:
                break
            assert ours.next_fetch_offset == theirs.next_fetch_offset
        assert ours.next_fetch_offset == theirs.next_fetch_offset


def test_of_a_batch_that_is_full_of_empty_records_a_part_is_unpacked_at_a_time():
    count = 200_000
    records = MemoryRecords(batch(0, *[b""] * count))
    unpack_within_limits()
    made = fetcher.PartitionRecords(TP, records, [], 0, None, None, False, "")
    tracemalloc.start()
    taken = made.take(10)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [record.offset for record in taken] == list(range(10))
    assert most < 20 * count  # a hundred and more would be all of them
    assert len(made.take(None)) == count - 10
    assert made.next_fetch_offset == count


def test_of_keys_and_values_that_somebody_reads_his_own_way_are_made_what_he_says():
    unpack_within_limits()
    records = MemoryRecords(batch(0, b"7"))
    [record] = fetcher.PartitionRecords(TP, records, [], 0, bytes.decode, int, True, "")
    assert (record.key, record.value, record.serialized_value_size) == ("key", 7, 1)


async def test_a_consumer_that_takes_few_at_a_time_or_goes_back_misses_none(clients, unique):
    await clients.create_topic(unique)
    here, producer = TopicPartition(unique, 0), await clients.producer()
    sent = [
        await producer.send(unique, b"%d" % number, key=b"key", partition=0) for number in range(50)
    ]
    await asyncio.gather(*sent)
    consumer = make_consumer(settings_for(clients.bootstrap_servers, unique))
    await consumer.start()
    try:
        consumer.assign([here])
        read = []
        while len(read) < 30:
            read += (await consumer.getmany(timeout_ms=500, max_records=7)).get(here, [])
            assert await consumer.position(here) == len(read)
        one = await consumer.getone()
        assert (one.value, one.offset) == (b"35", 35)
        consumer.seek(here, 3)
        while read[-1].offset < 49:
            read += (await consumer.getmany(timeout_ms=500, max_records=11)).get(here, [])
    finally:
        await consumer.stop()
    assert [record.offset for record in read] == [*range(35), *range(3, 50)]
    assert {record.value for record in read} == {b"%d" % number for number in range(50)}


class NoText(str):
    """The name of a header as other clients may send it, and brokers take it."""

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize("piece", [1, 2, aiokafka_patches.PIECE_RECORDS])
@pytest.mark.parametrize("codec", [0, *CODECS.values()])
def test_a_header_whose_name_is_no_text_stops_nobody(codec, piece, monkeypatch):
    monkeypatch.setattr(aiokafka_patches, "PIECE_RECORDS", piece)
    made = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, 0, 1 << 30)
    for number, name in enumerate(["fine", NoText("ab"), "fine"]):
        made.append(number, 1000, b"key", b"%d" % number, [(name, b"x")])
    read = unpacked(bytes(made.build()), batch(0, b"4", offset=3))
    assert [record.offset for record in read] == [0, 2, 3]
    assert [record.value[:8] for record in read] == [b"0", b"not read", b"4"]


async def test_a_consumer_passes_a_header_whose_name_is_no_text(clients, unique, monkeypatch):
    await clients.create_topic(unique)
    unpack_within_limits()
    monkeypatch.setattr(
        message_accumulator, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy
    )
    producer = await clients.producer()
    for name in ("fine", NoText("ab"), "fine"):
        made = producer.create_batch()
        made.append(timestamp=1000, key=None, value=b"value", headers=[(name, b"x")])
        await (await producer.send_batch(made, unique, partition=0))
    read = await read_by_consumer(clients.bootstrap_servers, unique, 3)
    assert [record.offset for record in read] == [0, 1, 2]
    assert [record.value[:8] for record in read] == [b"value", b"not read", b"value"]


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
async def test_a_consumer_passes_a_bomb(clients, unique, compression):
    await clients.create_topic(unique)
    most = 2 * MOST_UNPACKED_BYTES
    producer = await clients.producer(
        compression_type=compression, max_batch_size=most, max_request_size=most
    )
    bomb = b"\0" * (MOST_UNPACKED_BYTES + 1)
    for value in (b"first", bomb, b"last"):
        await producer.send_and_wait(unique, value, partition=0)
    read = await read_by_consumer(clients.bootstrap_servers, unique, 3)
    assert [record.offset for record in read] == [0, 1, 2]
    assert [record.value[:8] for record in read] == [b"first", b"not read", b"last"]
