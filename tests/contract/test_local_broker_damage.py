"""Whatever happens to the bytes of a log, what is read of it is a beginning of what was written."""

from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.local.broker import batch as batches
from deploy.local.broker.config import parse_topic_config
from deploy.local.broker.files import FilePool
from deploy.local.broker.log import PartitionLog

CONFIG = parse_topic_config({"segment.bytes": "1024"})


def open_log(folder: Path) -> tuple[PartitionLog, FilePool]:
    files = FilePool()
    return PartitionLog(folder, CONFIG, files, set(), 0), files


def one_batch(number: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, number, b"key", b"value %d" % number * 10, [])
    return bytes(builder.build())


def values(log: PartitionLog) -> list[bytes]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20, at_least_one=True)
        if not data:
            break
        for header, body in batches.split(data):
            found += [record.value for record in batches.records(bytes(body))]
            offset = header.last_offset + 1
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    which=st.integers(0, 9),
    damage=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), max_size=3),
    cut=st.integers(0, 400),
    tail=st.binary(max_size=80),
)
def test_a_damaged_last_file_loses_its_end_at_most(tmp_path_factory, which, damage, cut, tail):
    folder = tmp_path_factory.mktemp("log") / "0"
    log, files = open_log(folder)
    count = 5 + which
    for number in range(count):
        log.append(batches.split(one_batch(number)), 0)
    written = values(log)
    assert len(written) == count
    log.close()
    files.close_all()
    last = max(folder.glob("*.log"))
    data = bytearray(last.read_bytes())
    for at, flip in damage:
        if data:
            data[at % len(data)] ^= flip
    last.write_bytes(bytes(data[: max(len(data) - cut, 0)]) + tail)
    log, files = open_log(folder)
    left = values(log)
    assert left == written[: len(left)]
    assert log.append(batches.split(one_batch(99)), 0).offset == log.end_offset - 1
    assert values(log)[: len(left)] == left
    log.close()
    files.close_all()
