"""One file of a partition's log: whole record batches, one after the other.

A sparse index in memory finds offsets and timestamps. A sealed segment has it in a file beside it,
with the producers known at its end; the last segment is read through and checked at every start.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog
from aiokafka.errors import UnsupportedCodecError

from deploy.local.broker import batch as batches
from deploy.local.broker.batch import BatchHeader, CorruptBatchError
from deploy.local.broker.files import FilePool, write_all
from deploy.local.broker.producers import ProducerState, ProducerTable

INDEX_INTERVAL_BYTES = 4096
"""One index entry per so many bytes of log (Kafka's index.interval.bytes)."""
_SCAN_BYTES = 4 * 1024 * 1024

log = structlog.get_logger(__name__)


class SealedIndex(msgspec.Struct):
    """The file beside a sealed segment."""

    size: int
    end_offset: int
    max_timestamp: int
    offsets: bytes
    positions: bytes
    timestamps: bytes
    producers: dict[int, ProducerState]


class Segment:
    """A run of batches from `base_offset` to before `end_offset`, `size` bytes long."""

    def __init__(self, directory: Path, base_offset: int, files: FilePool) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.max_timestamp = -1
        self.written_ms = 0
        """When the last batch was written, in Unix milliseconds."""
        self.path = directory / f"{base_offset:020d}.log"
        self._files = files
        self._offsets = array("q")
        self._positions = array("q")
        self._timestamps = array("q")  # the highest timestamp before the entry

    @property
    def index_path(self) -> Path:
        """Where the index of the sealed segment is."""
        return self.path.with_suffix(".index")

    def append(self, header: BatchHeader, body: memoryview, base_offset: int) -> None:
        """Write a batch at the end, to start at `base_offset`; on OSError nothing has changed."""
        descriptor = self._files.descriptor(self.path)
        try:
            write_all(descriptor, batches.placed(body, base_offset), self.size)
        except OSError:
            os.ftruncate(descriptor, self.size)
            raise
        self._note(base_offset, header)

    def move_to(self, directory: Path, files: FilePool) -> None:
        """Rename the sealed segment's files into another directory, over what is there."""
        self._files.close(self.path)
        log_path, index_path = directory / self.path.name, directory / self.index_path.name
        index_path.unlink(missing_ok=True)
        self.path.replace(log_path)
        self.index_path.replace(index_path)
        files.close(log_path)
        self.path, self._files = log_path, files

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Return stored bytes from the batch that holds `offset`, or the next one after a gap.

        The end may cut a batch, as Kafka's does. With `at_least_one` the first batch is whole even
        if it is longer than `max_bytes`.
        """
        position = self._position_of(offset)
        if position >= self.size:
            return b""
        descriptor = self._files.descriptor(self.path)
        wanted = min(max_bytes, self.size - position)
        if wanted < batches.HEADER_BYTES and not at_least_one:
            return b""
        data = os.pread(descriptor, max(wanted, batches.HEADER_BYTES), position)
        _, first_size = batches.read_prefix(data, 0)
        if first_size > len(data):
            if not at_least_one:
                return b""
            data = os.pread(descriptor, first_size, position)
        return data

    def first_record_since(self, timestamp: int) -> batches.Record | None:
        """Return the first record with this Unix millisecond or a later one, or None."""
        if self.max_timestamp < timestamp:
            return None
        entry = max(bisect_left(self._timestamps, timestamp) - 1, 0)
        start = self._positions[entry] if self._positions else 0
        for position, header in self.headers(start):
            if header.max_timestamp < timestamp:
                continue
            found = self._first_since(position, header, timestamp)
            if found is not None:
                return found
        return None

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch from byte `start` on."""
        descriptor = self._files.descriptor(self.path)
        position = start
        while position < self.size:
            header = batches.read_header(os.pread(descriptor, batches.HEADER_BYTES, position))
            yield position, header
            position += header.size

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        """Return one whole batch."""
        return os.pread(self._files.descriptor(self.path), header.size, position)

    def seal(self, producers: ProducerTable) -> None:
        """Write the index file; nothing is appended any more."""
        index = SealedIndex(
            size=self.size,
            end_offset=self.end_offset,
            max_timestamp=self.max_timestamp,
            offsets=self._offsets.tobytes(),
            positions=self._positions.tobytes(),
            timestamps=self._timestamps.tobytes(),
            producers=producers.snapshot(),
        )
        temporary = self.index_path.with_suffix(".index.new")
        temporary.write_bytes(msgspec.msgpack.encode(index))
        temporary.replace(self.index_path)

    def load_sealed(self) -> ProducerTable | None:
        """Load the index file; None if it is missing or does not fit the segment."""
        try:
            index = msgspec.msgpack.decode(self.index_path.read_bytes(), type=SealedIndex)
            file = self.path.stat()
        except (OSError, msgspec.DecodeError):
            return None
        if index.size != file.st_size:
            return None
        self.written_ms = file.st_mtime_ns // 1_000_000
        self.size, self.end_offset = index.size, index.end_offset
        self.max_timestamp = index.max_timestamp
        for column, data in (
            (self._offsets, index.offsets),
            (self._positions, index.positions),
            (self._timestamps, index.timestamps),
        ):
            column.frombytes(data)
        return ProducerTable(index.producers)

    def recover(self, producers: ProducerTable) -> None:
        """Read the whole segment, check every batch, and cut it after the last good one.

        The producers are brought up to the segment's end.
        """
        descriptor = self._files.descriptor(self.path)
        file = os.fstat(descriptor)
        stored = file.st_size
        self.written_ms = file.st_mtime_ns // 1_000_000
        reason = ""
        try:
            for header in _checked_batches(descriptor, stored, self.base_offset):
                self._note(header.base_offset, header)
                producers.remember(header, header.base_offset)
        except CorruptBatchError as error:
            reason = str(error)
        if self.size < stored:
            log.warning(
                "damaged end of a log file was cut off",
                file=str(self.path),
                kept_bytes=self.size,
                cut_bytes=stored - self.size,
                next_offset=self.end_offset,
                reason=reason,
            )
            os.ftruncate(descriptor, self.size)

    def delete(self) -> None:
        """Remove the segment's files."""
        self._files.close(self.path)
        self.path.unlink(missing_ok=True)
        self.index_path.unlink(missing_ok=True)

    def _note(self, base_offset: int, header: BatchHeader) -> None:
        if not self._positions or self.size - self._positions[-1] >= INDEX_INTERVAL_BYTES:
            self._offsets.append(base_offset)
            self._positions.append(self.size)
            self._timestamps.append(self.max_timestamp)
        self.size += header.size
        self.end_offset = base_offset + header.last_offset_delta + 1
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def _position_of(self, offset: int) -> int:
        """Return where the first batch starts whose last offset is `offset` or higher."""
        if offset >= self.end_offset:
            return self.size
        entry = max(bisect_right(self._offsets, offset) - 1, 0)
        start = self._positions[entry]
        if self._offsets[entry] == offset:
            return start
        known = entry + 1 < len(self._positions)
        stop = self._positions[entry + 1] if known else self.size
        window = min(stop - start, 2 * INDEX_INTERVAL_BYTES)
        data = os.pread(self._files.descriptor(self.path), window + batches.HEADER_BYTES, start)
        at = 0
        while start + at < stop:
            header = batches.read_header(data, at)
            if header.last_offset >= offset:
                break
            at += header.size
            if at >= window:  # the entry's last batch is long: the next one starts after it
                break
        return start + at

    def _first_since(
        self, position: int, header: BatchHeader, timestamp: int
    ) -> batches.Record | None:
        try:
            for record in batches.records(self.batch_bytes(position, header)):
                if record.timestamp >= timestamp:
                    return record
        except UnsupportedCodecError:
            return batches.Record(header.base_offset, header.max_timestamp, None, None, [])
        return None


def _checked_batches(descriptor: int, stored: int, next_offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of the whole batches; raise CorruptBatchError at the first bad one."""
    position = 0
    chunk, chunk_at = b"", 0
    while position < stored:
        at = position - chunk_at
        if len(chunk) - at < batches.HEADER_BYTES:
            chunk, chunk_at, at = os.pread(descriptor, _SCAN_BYTES, position), position, 0
        header = batches.read_header(chunk, at)
        if len(chunk) - at < header.size:
            if header.size > stored - position:
                raise CorruptBatchError(f"batch of {header.size} bytes is cut at the file's end")
            chunk = os.pread(descriptor, max(_SCAN_BYTES, header.size), position)
            chunk_at, at = position, 0
        batches.check_crc(header, chunk, at)
        if header.base_offset < next_offset:
            raise CorruptBatchError(f"offset {header.base_offset} where {next_offset} was due")
        next_offset = header.last_offset + 1
        yield header
        position += header.size
