"""The topics: creation, deletion, and the upkeep of their logs."""

import asyncio
import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import structlog

from deploy.local.broker import compaction
from deploy.local.broker.batch import CorruptBatchError
from deploy.local.broker.config import TopicConfig, parse_topic_config
from deploy.local.broker.files import FilePool, raise_descriptor_limit, sync_file
from deploy.local.broker.log import PartitionLog
from deploy.local.broker.protocol import ErrorCode, RequestError
from deploy.local.broker.store import MetadataStore, TopicRow

MAX_PARTITIONS = 10_000
"""Partitions of one topic; more is a mistake on one machine."""
SYNC_SECONDS = 1.0
"""How much written data a power cut, but no crash of the broker, may cost."""
UPKEEP_SECONDS = 0.5
"""Time between two looks at retention and compaction."""
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SINCE = time.time() - time.clock_gettime(_STEADY)
"""All workers go by the broker's time: it must not jump when somebody sets the machine's clock."""
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

log = structlog.get_logger(__name__)


class Topic:
    """One topic and its open logs."""

    def __init__(self, row: TopicRow, config: TopicConfig, logs: list[PartitionLog]) -> None:
        self.row = row
        self.config = config
        self.logs = logs


class Topics:
    """All topics of the broker, under `directory`."""

    def __init__(self, directory: Path, store: MetadataStore) -> None:
        self._directory = directory
        self._store = store
        self._files = FilePool(raise_descriptor_limit())
        self._unsynced: set[Path] = set()
        self._topics: dict[str, Topic] = {}
        directory.mkdir(parents=True, exist_ok=True)
        for row in store.topics():
            self._open(row)
        known = {topic.row.directory for topic in self._topics.values()}
        for leftover in directory.iterdir():
            if leftover.name not in known:  # deleted by a broker that was killed meanwhile
                shutil.rmtree(leftover, ignore_errors=True)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def get(self, name: str) -> Topic | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def partition(self, name: str, partition: int) -> PartitionLog | None:
        """Return a partition's log, or None if there is no such partition."""
        topic = self._topics.get(name)
        if topic is None or not 0 <= partition < len(topic.logs):
            return None
        return topic.logs[partition]

    def create(
        self, name: str, partitions: int, config: dict[str, str], *, validate_only: bool = False
    ) -> None:
        """Create a topic; raises RequestError with Kafka's code for what is wrong."""
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name[:60]!r} is no topic name: up to 249 letters, digits, '.', '_', '-'",
            )
        if name in self._topics:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}",
            )
        parse_topic_config(config)
        if validate_only:
            return
        row = TopicRow(name, f"{name[:100]}-{uuid.uuid4().hex[:12]}", partitions, config)
        self._store.put_topic(row)
        self._open(row)
        log.info("topic created", topic=name, partitions=partitions, config=config)

    def add_partitions(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `partitions`; raises RequestError."""
        topic = self._topics.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        if not len(topic.logs) < partitions <= MAX_PARTITIONS:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name} has {len(topic.logs)} partitions and can only get more",
            )
        if validate_only:
            return
        topic.row = msgspec.structs.replace(topic.row, partitions=partitions)
        self._store.put_topic(topic.row)
        topic.logs += self._open_logs(topic.row, topic.config, len(topic.logs))

    def configure(self, name: str, config: dict[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's own settings; raises RequestError for what is wrong."""
        topic = self._topics.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        parsed = parse_topic_config(config)
        if validate_only:
            return
        topic.row = msgspec.structs.replace(topic.row, config=config)
        self._store.put_topic(topic.row)
        topic.config = parsed
        for partition in topic.logs:
            partition.config = parsed
        log.info("topic configured", topic=name, config=config)

    def delete(self, name: str) -> None:
        """Delete a topic with its data; raises RequestError if there is none."""
        topic = self._topics.pop(name, None)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        self._store.delete_topic(name)
        for partition in topic.logs:
            partition.close()
        shutil.rmtree(self._directory / topic.row.directory, ignore_errors=True)
        log.info("topic deleted", topic=name)

    async def sync(self) -> None:
        """Flush what was written since the last call to the disk."""
        paths = list(self._unsynced)
        self._unsynced.clear()
        await asyncio.to_thread(_sync_all, paths)

    async def keep_synced(self) -> None:
        """Flush written data at intervals, for ever."""
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            try:
                await self.sync()
            except OSError as error:
                log.critical("log cannot be flushed to the disk", error=str(error))

    async def keep_small(self) -> None:
        """Apply retention and compaction at intervals, for ever."""
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            for topic in self:
                for partition in topic.logs:
                    await _maintain(partition)
                await asyncio.sleep(0)  # requests come first

    def close(self) -> None:
        """Flush and close all logs."""
        with contextlib.suppress(OSError):
            for path in self._unsynced:
                sync_file(path)
        for topic in self:
            for partition in topic.logs:
                partition.close()
        self._files.close_all()

    def _open(self, row: TopicRow) -> None:
        config = parse_topic_config(row.config)
        self._topics[row.name] = Topic(row, config, self._open_logs(row, config, 0))

    def _open_logs(self, row: TopicRow, config: TopicConfig, first: int) -> list[PartitionLog]:
        now = now_ms()
        directory = self._directory / row.directory
        return [
            PartitionLog(directory / str(number), config, self._files, self._unsynced, now)
            for number in range(first, row.partitions)
        ]


def _sync_all(paths: Iterable[Path]) -> None:
    for path in paths:
        sync_file(path)


async def _maintain(partition: PartitionLog) -> None:
    now = now_ms()
    try:
        partition.roll_if_due(now)
        partition.enforce_retention(now)
        if compaction.is_due(partition, now):
            await compaction.compact(partition, now)
    except (OSError, RequestError, CorruptBatchError) as error:
        log.warning("upkeep of a log failed", directory=str(partition.directory), error=str(error))


def now_ms() -> int:
    """Return the time in Unix milliseconds, Kafka's unit; it never goes back while we run."""
    return int((time.clock_gettime(_STEADY) + _SINCE) * 1000)
