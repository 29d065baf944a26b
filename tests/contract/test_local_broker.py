"""What only the local broker has to show: recovery, hostile bytes, clear refusals, retention."""

import asyncio
import socket
import struct
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import TransactionalIdAuthorizationFailed
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.local.broker import Broker
from deploy.local.broker import batch as batches
from deploy.local.broker.compaction import compact, is_due
from deploy.local.broker.config import parse_topic_config
from deploy.local.broker.files import FilePool
from deploy.local.broker.log import PartitionLog
from deploy.local.broker.protocol import ErrorCode, RequestError
from deploy.local.kafka import LocalBroker
from shared.contracts.topics import HOST_LIMITS


@pytest.fixture
def own_local_broker(scratch_dir: Path) -> Iterator[LocalBroker]:
    broker = LocalBroker(scratch_dir / f"own-{uuid.uuid4().hex}")
    broker.start()
    yield broker
    broker.stop()


async def produced(clients, topic: str, count: int) -> None:
    producer = await clients.producer()
    for number in range(count):
        await producer.send_and_wait(topic, b"%d" % number)
    await producer.stop()


def log_file(data_dir: Path) -> Path:
    (path,) = (path for path in data_dir.rglob("*.log") if path.parent.name == "0")
    return path


@pytest.mark.parametrize("damage", ["garbage", "cut", "flipped", "zeros"])
async def test_a_damaged_tail_is_cut_to_the_last_whole_batch(
    own_local_broker, connect, read, unique, damage
):
    broker = own_local_broker
    clients = connect(broker.bootstrap_servers)
    await clients.create_topic(unique)
    await produced(clients, unique, 10)
    broker.kill()
    path = log_file(broker.log_path.parent)
    data = path.read_bytes()
    damaged = {
        "garbage": data + b"\xff" * 100,
        "cut": data[:-5],
        "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "zeros": data + bytes(5000),
    }[damage]
    path.write_bytes(damaged)
    broker.start()
    assert "damaged end of a log file was cut off" in broker.log_path.read_text()
    whole = 10 if damage in ("garbage", "zeros") else 9
    producer = await clients.producer()
    assert (await producer.send_and_wait(unique, b"next")).offset == whole
    consumer = await clients.consumer(unique)
    values = [record.value for record in await read(consumer, whole + 1)]
    assert values == [*(b"%d" % number for number in range(whole)), b"next"]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    api_key=st.integers(-2, 80),
    version=st.integers(-1, 20),
    body=st.binary(max_size=300),
    framed=st.booleans(),
)
def test_garbage_never_stops_the_broker(local_broker, api_key, version, body, framed):
    host, port = local_broker.bootstrap_servers.split(":")
    frame = struct.pack(">hhih", api_key, version, 7, -1) + body
    data = struct.pack(">i", len(frame)) + frame if framed else body
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 9, -1))
        answer = connection.recv(65536)
    assert struct.unpack_from(">ih", answer, 4) == (9, 0)


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 200 * 1024 * 1024])
def test_an_impossible_length_closes_the_connection(local_broker, length):
    host, port = local_broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", length) + b"x" * 100)
        with suppress(ConnectionResetError):  # closed with our bytes unread
            assert connection.recv(10) == b""


def test_a_later_api_versions_request_is_answered_in_version_0(local_broker):
    host, port = local_broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 4, 9, -1))
        answer = connection.recv(65536)
    assert struct.unpack_from(">ih", answer, 4) == (9, 35)


async def test_transactions_are_refused(local_broker):
    producer = AIOKafkaProducer(
        bootstrap_servers=local_broker.bootstrap_servers, transactional_id="t"
    )
    with pytest.raises(TransactionalIdAuthorizationFailed):
        await producer.start()
    await producer.stop()


async def test_the_log_is_kept_within_its_limit(local_broker, connect, unique):
    clients = connect(local_broker.bootstrap_servers)
    await clients.create_topic(unique, segment_bytes="20000", retention_bytes="50000")
    producer = await clients.producer(max_batch_size=5000)
    for _ in range(200):
        await producer.send(unique, b"x" * 1000)
    await producer.flush()
    consumer = await clients.consumer()
    place = TopicPartition(unique, 0)
    while (await consumer.beginning_offsets([place]))[place] < 130:
        await asyncio.sleep(0.1)
    assert (await consumer.beginning_offsets([place]))[place] <= 150
    assert await consumer.end_offsets([place]) == {place: 200}


@pytest.mark.slow(1)
async def test_a_full_disk_is_a_clear_error_and_costs_nothing(
    tmp_path, connect, unique, monkeypatch
):
    broker = Broker(tmp_path / "data")
    await broker.start()
    try:
        clients = connect(broker.bootstrap_servers)
        await clients.create_topic(unique)
        producer = await clients.producer(request_timeout_ms=1000, retry_backoff_ms=50)
        await producer.send_and_wait(unique, b"first")
        with monkeypatch.context() as patch:

            def full(descriptor: int, parts: list[bytes], at: int) -> int:
                raise OSError(28, "No space left on device")

            patch.setattr("deploy.local.broker.segment.write_all", full)
            with pytest.raises(Exception, match=r"(?i)storage|timeout|leader"):
                await producer.send_and_wait(unique, b"lost")
        stored = await producer.send_and_wait(unique, b"second")
        assert stored.offset == 1
        await producer.stop()
    finally:
        await broker.stop()


@given(position=st.integers(0, 10**6), flip=st.integers(1, 255), count=st.integers(1, 5))
def test_a_damaged_batch_is_never_taken(position, flip, count):
    found = [batches.Record(n, 1, b"k", b"value %d" % n, []) for n in range(count)]
    header = batches.BatchHeader(0, 0, 0, 2, 0, 0, count - 1, 1, 1, -1, -1, -1, count)
    data = bytearray(batches.rebuild(header, found))
    assert list(batches.records(bytes(data))) == found
    checked = [*range(8, 12), *range(16, len(data))]  # offset and leader epoch are the broker's
    data[checked[position % len(checked)]] ^= flip
    with pytest.raises(batches.CorruptBatchError):
        batches.split(bytes(data))


def numbered_batch(sequence: int, epoch: int = 0) -> list[tuple[batches.BatchHeader, memoryview]]:
    """A batch of an idempotent producer."""
    record = batches.Record(0, 1, None, b"x", [])
    header = batches.BatchHeader(0, 0, 0, 2, 0, 0, 0, 1, 1, 77, epoch, sequence, 1)
    return batches.split(batches.rebuild(header, [record]))


def test_a_repeated_batch_is_stored_once_and_a_gap_is_refused(tmp_path):
    batch = numbered_batch

    def opened() -> PartitionLog:
        return PartitionLog(tmp_path / "0", parse_topic_config({}), FilePool(), set(), 0)

    log = opened()
    assert [log.append(batch(n), 0).offset for n in (0, 1, 2, 1)] == [0, 1, 2, 1]
    log.close()
    log = opened()  # known again from the log
    assert log.append(batch(2), 0).offset == 2
    with pytest.raises(RequestError) as refused:
        log.append(batch(4), 0)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(batch(0, epoch=1), 0).offset == 3
    with pytest.raises(RequestError) as refused:
        log.append(batch(3), 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.close()


STAMPED = {"message.timestamp.type": "LogAppendTime"}


def test_of_a_repeated_batch_the_time_is_known_from_sealed_files_and_from_the_last(tmp_path):
    config = parse_topic_config(STAMPED | {"segment.ms": "1000"})

    def opened(now_ms: int) -> PartitionLog:
        return PartitionLog(tmp_path / "0", config, FilePool(), set(), now_ms)

    log = opened(0)
    log.append(numbered_batch(0), 500)
    log.roll_if_due(2_000)
    log.append(numbered_batch(1), 2_500)
    log.close()
    for now_ms in (3_000, 10_000):
        log = opened(now_ms)
        assert [log.append(numbered_batch(n), now_ms) for n in (0, 1)] == [(0, 500), (1, 2_500)]
        log.roll_if_due(now_ms + 2_000)
        log.close()


def test_a_broker_of_before_has_noted_no_times_and_its_files_are_read(tmp_path):
    log = PartitionLog(tmp_path / "0", parse_topic_config(STAMPED), FilePool(), set(), 0)
    log.append(numbered_batch(0), 500)
    log.roll_if_due(10**9)
    log.close()
    [path] = (tmp_path / "0").glob("*.index")
    index = msgspec.msgpack.decode(path.read_bytes())
    [(_, [batch])] = index["producers"].values()
    assert batch.pop() == 500
    path.write_bytes(msgspec.msgpack.encode(index))
    log = PartitionLog(tmp_path / "0", parse_topic_config(STAMPED), FilePool(), set(), 0)
    assert log.append(numbered_batch(0), 900) == (0, batches.NO_TIMESTAMP)
    log.close()


async def test_what_compaction_leaves_of_a_batch_has_the_brokers_time_still(tmp_path):
    """Whoever reads it asks whose time it is: a message that came too late stays one."""
    config = parse_topic_config(STAMPED | {"cleanup.policy": "compact"})
    log = PartitionLog(tmp_path / "0", config, FilePool(), set(), 0)
    header = batches.BatchHeader(0, 0, 0, 2, 0, 0, 1, 1, 1, -1, -1, -1, 2)
    both = [batches.Record(number, 1, b"key %d" % number, b"x", []) for number in range(2)]
    log.append(batches.split(batches.rebuild(header, both)), 500)
    log.append(keyed_batch(b"key 0", b"y"), 700)
    log.roll_if_due(10**9)
    await compact(log, 10**9)
    data = log.read(0, 1 << 20, at_least_one=True)
    (first, second) = [DefaultRecordBatch(bytes(body)) for _, body in batches.split(data)]
    assert [(batch.timestamp_type, batch.max_timestamp) for batch in (first, second)] == [
        (1, 500),
        (1, 700),
    ]
    assert [(r.offset, r.timestamp) for r in records_of(log)] == [(1, 500), (2, 700)]
    log.close()


def keyed_batch(key: bytes, value: bytes) -> list[tuple[batches.BatchHeader, memoryview]]:
    header = batches.BatchHeader(0, 0, 0, 2, 0, 0, 0, 1, 1, -1, -1, -1, 1)
    return batches.split(batches.rebuild(header, [batches.Record(0, 1, key, value, [])]))


def records_of(log: PartitionLog) -> list[batches.Record]:
    found, offset = list[batches.Record](), log.start_offset
    while data := log.read(offset, 1 << 20, at_least_one=True):
        for header, body in batches.split(data):
            found += batches.records(bytes(body))
            offset = header.last_offset + 1
    return found


async def test_host_limits_that_are_written_day_by_day_are_compacted_after_a_week(tmp_path):
    half_a_day, hosts = 43_200_000, 3
    config = parse_topic_config(HOST_LIMITS.config)
    kept = config.min_compaction_lag_ms // half_a_day

    def opened(now_ms: int) -> PartitionLog:
        return PartitionLog(tmp_path / "0", config, FilePool(), set(), now_ms)

    log = opened(0)
    for turn in range(60):
        now_ms = (turn + 1) * half_a_day
        log.append(keyed_batch(b"host %d" % (turn % hosts), b"%d" % turn), now_ms)
        log.roll_if_due(now_ms)
        if is_due(log, now_ms):
            await compact(log, now_ms)
    # What is older than the lag is one file; what is younger, each file as it was written.
    assert len(log.sealed) <= kept + 2
    left = [int(record.value) for record in records_of(log)]
    assert left[-kept:] == list(range(60 - kept, 60))
    assert len(left) <= kept + hosts + 1
    assert {turn % hosts for turn in left[:-kept]} == set(range(hosts))
    written_ms = log.sealed[0].written_ms
    log.close()
    # Its age is as it was for a broker that starts again, too: it waits for no other week.
    log = opened(60 * half_a_day)
    assert log.sealed[0].written_ms == written_ms <= (60 - kept) * half_a_day
    log.close()
