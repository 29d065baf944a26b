"""Compaction: of every key in the older sealed segments, only the last message stays.

Segments are read and rewritten in a thread, with files of their own; the log swaps the result in on
the event loop. A kill at any point leaves either the old segments or the new one.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import structlog
from aiokafka.errors import UnsupportedCodecError

from deploy.local.broker import batch as batches
from deploy.local.broker.batch import BatchHeader, Record
from deploy.local.broker.files import FilePool, sync_file
from deploy.local.broker.log import PartitionLog
from deploy.local.broker.producers import ProducerTable
from deploy.local.broker.segment import Segment

log = structlog.get_logger(__name__)


def is_due(partition: PartitionLog, now_ms: int) -> bool:
    """Whether the log has enough sealed data that was never compacted."""
    config = partition.config
    if not config.compact:
        return False
    cleanable = _cleanable(partition, now_ms)
    dirty = [segment for segment in cleanable if segment.end_offset > partition.cleaned_until]
    if not dirty:
        return False
    total = sum(segment.size for segment in cleanable)
    overdue = any(now_ms - segment.written_ms >= config.max_compaction_lag_ms for segment in dirty)
    dirty_bytes = sum(segment.size for segment in dirty)
    return overdue or dirty_bytes >= config.min_cleanable_dirty_ratio * total


async def compact(partition: PartitionLog, now_ms: int) -> None:
    """Compact the sealed segments of a log, but for those that are too young; raises OSError if the
    disk does not take it."""
    old = _cleanable(partition, now_ms)
    workspace = partition.directory / "compacting"
    compacted = await asyncio.to_thread(
        _rewrite, old, workspace, now_ms - partition.config.delete_retention_ms
    )
    if partition.sealed[: len(old)] == old:  # else retention or deletion of the topic was faster
        before = sum(segment.size for segment in old)
        partition.replace_sealed(old, compacted)
        log.info(
            "compacted",
            directory=str(partition.directory),
            before_bytes=before,
            after_bytes=compacted.size,
        )
    shutil.rmtree(workspace, ignore_errors=True)


def _cleanable(partition: PartitionLog, now_ms: int) -> list[Segment]:
    """The sealed segments before the first that is younger than the lag and was never compacted.

    The young ones keep nobody waiting: a log that is always written to always has some.
    """
    oldest = now_ms - partition.config.min_compaction_lag_ms
    return list(
        takewhile(
            lambda segment: (
                segment.end_offset <= partition.cleaned_until or segment.written_ms <= oldest
            ),
            partition.sealed,
        )
    )


def _rewrite(old: list[Segment], workspace: Path, tombstones_since_ms: int) -> Segment:
    """Write what must stay of the segments into one sealed segment under `workspace`."""
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir()
    files = FilePool(len(old) + 2)
    try:
        latest = _latest_offsets(old, files)
        compacted = Segment(workspace, old[0].base_offset, files)
        files.descriptor(compacted.path)
        for header, data in _batches(old, files):
            kept = _kept(header, data, latest, tombstones_since_ms)
            if kept:
                view = memoryview(kept)
                compacted.append(batches.read_header(view), view, header.base_offset)
        producers = Segment(old[-1].path.parent, old[-1].base_offset, files).load_sealed()
        compacted.written_ms = old[-1].written_ms
        compacted.seal(producers or ProducerTable())
        # A broker that starts again goes by the file's time: its records are as old as they were.
        os.utime(compacted.path, ns=(compacted.written_ms * 1_000_000,) * 2)
        sync_file(compacted.path)
        sync_file(compacted.index_path)
    finally:
        files.close_all()
    return compacted


def _batches(old: list[Segment], files: FilePool) -> Iterator[tuple[BatchHeader, bytes]]:
    for segment in old:
        own = Segment(segment.path.parent, segment.base_offset, files)
        own.size = segment.size
        for position, header in own.headers():
            yield header, own.batch_bytes(position, header)


def _latest_offsets(old: list[Segment], files: FilePool) -> dict[bytes, int]:
    latest: dict[bytes, int] = {}
    for _, data in _batches(old, files):
        with contextlib.suppress(UnsupportedCodecError):
            for record in batches.records(data):
                if record.key is not None:
                    latest[record.key] = record.offset
    return latest


def _kept(
    header: BatchHeader, data: bytes, latest: dict[bytes, int], tombstones_since_ms: int
) -> bytes:
    """Return the batch without what is obsolete; empty if nothing stays."""
    try:
        found = list(batches.records(data))
    except UnsupportedCodecError:
        return data  # cannot be read here: kept whole
    kept = [r for r in found if _stays(r, latest, tombstones_since_ms)]
    if len(kept) == len(found):
        return data
    return batches.rebuild(header, kept) if kept else b""


def _stays(record: Record, latest: dict[bytes, int], tombstones_since_ms: int) -> bool:
    if record.key is None or latest[record.key] > record.offset:
        return False
    return record.value is not None or record.timestamp >= tombstones_since_ms
