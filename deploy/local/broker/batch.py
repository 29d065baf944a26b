"""Record batches of Kafka's message format v2: header, checksum, records.

The layout is that of Kafka's documentation, "Record Batch". A batch is stored as the producer sent
it, compressed or not; the broker writes only the base offset and the leader epoch, which the
checksum does not cover.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from aiokafka.errors import UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

HEADER_BYTES = 61
"""Bytes before the records."""
PREFIX_BYTES = 12
"""Base offset and length: what must be read to know how long a batch is."""
LEADER_EPOCH = b"\0\0\0\0"
"""The only broker has led since epoch 0."""
NO_TIMESTAMP = -1
"""In an answer: the records have the times that their producer gave them."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_MAX_TIMESTAMP = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_LAST_OFFSET_DELTA_AT = 23
_MAX_TIMESTAMP_AT = 35
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL_OR_CONTROL = 0x30
_CODEC_MASK = 0x07


class CorruptBatchError(ValueError):
    """The bytes are not a whole, undamaged record batch of format v2."""


class BatchHeader(NamedTuple):
    """The fixed part of a record batch; timestamps in Unix milliseconds."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, or is a control batch."""
        return bool(self.attributes & _TRANSACTIONAL_OR_CONTROL)

    @property
    def codec(self) -> int:
        """Number of the compression codec, 0 for none."""
        return self.attributes & _CODEC_MASK


class Record(NamedTuple):
    """One record of a batch; timestamp in Unix milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_prefix(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a batch's base offset and its size in bytes, without checking either."""
    base_offset, length = _PREFIX.unpack_from(data, at)
    return base_offset, length + PREFIX_BYTES


def read_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """Return the header of the batch that starts at byte `at`.

    Raises CorruptBatchError if the bytes cannot be a batch of format v2.
    """
    if len(data) - at < HEADER_BYTES:
        raise CorruptBatchError(f"{len(data) - at} bytes are less than a batch header")
    header = BatchHeader._make(_HEADER.unpack_from(data, at))
    if header.magic != 2:
        raise CorruptBatchError(f"message format {header.magic}; only format 2 is supported")
    if header.length < HEADER_BYTES - PREFIX_BYTES or header.last_offset_delta < 0:
        raise CorruptBatchError(
            f"impossible batch: length {header.length}, "
            f"last offset delta {header.last_offset_delta}"
        )
    return header


def check_crc(header: BatchHeader, data: bytes | memoryview, at: int = 0) -> None:
    """Raise CorruptBatchError unless the batch at byte `at` is whole and its checksum is right."""
    if len(data) - at < header.size:
        raise CorruptBatchError(f"batch of {header.size} bytes is cut after {len(data) - at}")
    body = memoryview(data)[at + _ATTRIBUTES_AT : at + header.size]
    if calc_crc32c(body) != header.crc:
        raise CorruptBatchError("checksum of the batch is wrong")


def split(data: bytes) -> list[tuple[BatchHeader, memoryview]]:
    """Cut a produce request's record set into checked batches.

    Raises CorruptBatchError for anything but one or more whole batches of format v2.
    """
    view = memoryview(data)
    batches = []
    at = 0
    while at < len(view):
        header = read_header(view, at)
        check_crc(header, view, at)
        batches.append((header, view[at : at + header.size]))
        at += header.size
    if not batches:
        raise CorruptBatchError("a record set must hold a batch")
    return batches


def stamped(body: memoryview, now_ms: int) -> memoryview:
    """Return a copy of a batch that says it came at `now_ms`, as all of its records then do."""
    data = bytearray(body)
    (attributes,) = _ATTRIBUTES.unpack_from(data, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, now_ms)
    _CRC.pack_into(data, _CRC_AT, calc_crc32c(memoryview(data)[_ATTRIBUTES_AT:]))
    return memoryview(data)


def placed(body: memoryview, base_offset: int) -> list[bytes | memoryview]:
    """Return the parts of a batch as it is stored at `base_offset`, copying nothing large."""
    return [_BASE_OFFSET.pack(base_offset), body[8:12], LEADER_EPOCH, body[16:]]


def records(batch: bytes) -> Iterator[Record]:
    """Yield the records of one batch, decompressed.

    Raises UnsupportedCodecError if the codec's library is missing, CorruptBatchError if the records
    cannot be decoded.
    """
    try:
        for record in DefaultRecordBatch(batch):
            yield Record(record.offset, record.timestamp, record.key, record.value, record.headers)
    except UnsupportedCodecError:
        raise
    except Exception as error:  # the codec libraries raise what they like
        raise CorruptBatchError(f"records cannot be decoded: {error}") from error


def rebuild(header: BatchHeader, kept: list[Record]) -> bytes:
    """Return a batch of some of the records of an old one, at their old offsets.

    Base offset, last offset, producer and whose time it is stay as they were, so that readers and
    the log see no change but the missing records.
    """
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=header.codec,
        is_transactional=0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        batch_size=1 << 30,
    )
    for record in kept:
        builder.append(
            record.offset - header.base_offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers,
        )
    data = builder.build()
    data[0:8] = _BASE_OFFSET.pack(header.base_offset)
    data[12:16] = LEADER_EPOCH
    _LAST_OFFSET_DELTA.pack_into(data, _LAST_OFFSET_DELTA_AT, header.last_offset_delta)
    _CRC.pack_into(data, _CRC_AT, calc_crc32c(memoryview(data)[_ATTRIBUTES_AT:]))
    if header.attributes & _LOG_APPEND_TIME:
        return bytes(stamped(memoryview(data), header.max_timestamp))
    return bytes(data)
