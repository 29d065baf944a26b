"""The log of one partition: segments on disk, offsets, readers that wait for more."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import structlog
from aiokafka.errors import UnsupportedCodecError

from deploy.local.broker import batch as batches
from deploy.local.broker.batch import BatchHeader, CorruptBatchError
from deploy.local.broker.config import UNLIMITED, TopicConfig
from deploy.local.broker.files import FilePool, sync_directory
from deploy.local.broker.producers import ProducerTable
from deploy.local.broker.protocol import ErrorCode, RequestError
from deploy.local.broker.segment import Segment

log = structlog.get_logger(__name__)

COMPLAINT_MS = 10_000
"""A full disk is told of once in so long: clients try again many times a second."""


class Waiter:
    """A reader that waits until its partitions have grown by so many bytes together."""

    def __init__(self, missing: int) -> None:
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing = missing

    def note(self, size: int) -> None:
        """A partition has grown by so much."""
        self._missing -= size
        if self._missing <= 0:
            self.wake()

    def wake(self) -> None:
        """There is something to look at."""
        if not self.woken.done():
            self.woken.set_result(None)


class Stored(NamedTuple):
    """What is answered of a batch that was stored."""

    offset: int
    """Of its first record."""
    timestamp: int
    """The broker's time of it, Unix milliseconds; of one that came twice its own, as Kafka does."""


class PartitionLog:
    """One partition's batches, from `start_offset` to before `end_offset`.

    Opening it recovers what a crash left: the last segment is checked batch by batch and cut after
    the last good one. Not thread-safe: everything runs on the event loop.
    """

    def __init__(
        self,
        directory: Path,
        config: TopicConfig,
        files: FilePool,
        unsynced: set[Path],
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.config = config
        self.waiters: set[Waiter] = set()
        self.cleaned_until = 0
        """Compaction has seen everything before this offset."""
        self._files = files
        self._unsynced = unsynced
        self._producers = ProducerTable()
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._opened_ms = now_ms
        self._load()

    @property
    def start_offset(self) -> int:
        """Offset of the first record that is still stored, or could be."""
        return self._bases[0]

    @property
    def end_offset(self) -> int:
        """Offset that the next record gets."""
        return self._segments[-1].end_offset

    @property
    def size(self) -> int:
        """Bytes stored."""
        return sum(segment.size for segment in self._segments)

    @property
    def sealed(self) -> list[Segment]:
        """The segments that nothing is appended to any more, oldest first."""
        return self._segments[:-1]

    def append(self, found: list[tuple[BatchHeader, memoryview]], now_ms: int) -> Stored:
        """Store checked batches and return where and when the first one was.

        Raises RequestError if the topic does not take them, or the disk does not (nothing of the
        failing batch is stored then).
        """
        for header, body in found:
            self._check(header, body)
        first: Stored | None = None
        for header, body in found:
            known = self._producers.find_duplicate(header)
            if known is not None:
                stored = Stored(known.base_offset, known.timestamp)
            else:
                stored = self._store(header, body, now_ms)
            first = stored if first is None else first
        size = sum(header.size for header, _ in found)
        for waiter in self.waiters:
            waiter.note(size)
        if first is None:
            raise RequestError(ErrorCode.CORRUPT_MESSAGE, "a record set must hold a batch")
        return first

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Return stored batches from `offset` on; empty at the end of the log.

        Raises RequestError (OFFSET_OUT_OF_RANGE) outside the log.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.start_offset}..{self.end_offset}",
            )
        at = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[at:]:
            if offset < segment.end_offset:
                return segment.read(offset, max_bytes, at_least_one=at_least_one)
        return b""

    def first_record_since(self, timestamp: int) -> batches.Record | None:
        """Return the first record with this Unix millisecond or a later one, or None."""
        for segment in self._segments:
            found = segment.first_record_since(timestamp)
            if found is not None:
                return found
        return None

    def roll_if_due(self, now_ms: int) -> None:
        """Seal the last segment if its time is up."""
        active = self._segments[-1]
        if not active.size:
            return
        limit = self.config.segment_ms
        if self.config.compact:
            limit = min(limit, self.config.max_compaction_lag_ms)
        outlived = (
            self.config.delete
            and self.config.retention_ms != UNLIMITED
            and active.written_ms < now_ms - self.config.retention_ms
        )
        if outlived or now_ms - self._opened_ms >= limit:
            self._roll(now_ms)

    def enforce_retention(self, now_ms: int) -> int:
        """Delete the oldest sealed segments beyond the limits; return how many.

        Age counts from the last write, not from the messages' own times as in Kafka: replayed
        traces carry old times, and must not vanish while they are read.
        """
        if not self.config.delete or not self.sealed:
            return 0
        size, count = self.size, 0
        for segment in self.sealed:
            too_much = (
                self.config.retention_bytes != UNLIMITED
                and size - segment.size >= self.config.retention_bytes
            )
            too_old = (
                self.config.retention_ms != UNLIMITED
                and segment.written_ms < now_ms - self.config.retention_ms
            )
            if not (too_much or too_old):
                break
            size -= segment.size
            count += 1
        self._drop(self._segments[:count])
        return count

    def replace_sealed(self, old: list[Segment], compacted: Segment) -> None:
        """Put a compacted segment, sealed in another directory, where the `old` ones were."""
        compacted.move_to(self.directory, self._files)
        self._segments[: len(old)] = [compacted]
        self._bases = [segment.base_offset for segment in self._segments]
        self.cleaned_until = old[-1].end_offset
        for segment in old[1:]:
            segment.delete()

    def close(self) -> None:
        """Close the files; waiting readers are woken."""
        for segment in self._segments:
            self._files.close(segment.path)
        for waiter in self.waiters:
            waiter.wake()

    def _check(self, header: BatchHeader, body: memoryview) -> None:
        if header.is_transactional:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the local broker has no transactions; use Apache Kafka for them",
            )
        if header.record_count != header.last_offset_delta + 1:
            raise RequestError(
                ErrorCode.INVALID_RECORD,
                f"{header.record_count} records with a last offset of {header.last_offset_delta}",
            )
        if header.size > self.config.max_message_bytes:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {header.size} bytes is larger than max.message.bytes="
                f"{self.config.max_message_bytes}",
            )
        if self.config.compact:
            _check_keys(bytes(body))

    def _store(self, header: BatchHeader, body: memoryview, now_ms: int) -> Stored:
        active = self._segments[-1]
        full = active.size + header.size > self.config.segment_bytes
        if active.size and (full or now_ms - self._opened_ms >= self.config.segment_ms):
            active = self._roll(now_ms)
        elif not active.size:
            self._opened_ms = now_ms
        base_offset, timestamp = active.end_offset, batches.NO_TIMESTAMP
        if self.config.log_append_time:
            body, timestamp = batches.stamped(body, now_ms), now_ms
            header = batches.read_header(body)
        try:
            active.append(header, body, base_offset)
        except OSError as error:
            if now_ms >= self._files.complains_at_ms:
                self._files.complains_at_ms = now_ms + COMPLAINT_MS
                log.critical("log cannot be written", file=str(active.path), error=str(error))
            raise RequestError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{active.path.name} cannot be written: {error.strerror}; free disk space",
            ) from error
        active.written_ms = now_ms
        self._producers.remember(header, base_offset)
        self._unsynced.add(active.path)
        return Stored(base_offset, timestamp)

    def _roll(self, now_ms: int) -> Segment:
        old = self._segments[-1]
        try:
            old.seal(self._producers)
            active = Segment(self.directory, old.end_offset, self._files)
            self._files.descriptor(active.path)
        except OSError as error:
            raise RequestError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"no new log file: {error.strerror}"
            ) from error
        self._segments.append(active)
        self._bases.append(active.base_offset)
        self._opened_ms = now_ms
        return active

    def _drop(self, dropped: Iterable[Segment]) -> None:
        for segment in list(dropped):
            self._segments.remove(segment)
            segment.delete()
        self._bases = [segment.base_offset for segment in self._segments]

    def _load(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        bases = sorted(int(path.stem) for path in self.directory.glob("*.log"))
        end_offset = bases[0] if bases else 0
        for base in bases:
            segment = Segment(self.directory, base, self._files)
            if base < end_offset:  # compacted into the one before, by a broker that was killed
                segment.delete()
                continue
            is_last = base == bases[-1]
            producers = None if is_last else segment.load_sealed()
            if producers is not None:
                self._producers = producers
            else:
                segment.recover(self._producers)
            end_offset = max(end_offset, segment.end_offset)
            self._segments.append(segment)
        if not self._segments:
            self._segments.append(Segment(self.directory, 0, self._files))
            sync_directory(self.directory.parent)
        self._bases = [segment.base_offset for segment in self._segments]


def _check_keys(data: bytes) -> None:
    try:
        keyless = any(record.key is None for record in batches.records(data))
    except UnsupportedCodecError:
        return
    except CorruptBatchError as error:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if keyless:
        raise RequestError(
            ErrorCode.INVALID_RECORD, "a compacted topic takes only messages with a key"
        )
