"""The shards of this process, and what Kafka tells them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import structlog
from aiokafka import TopicPartition

from services.scheduler import metrics
from services.scheduler.in_flight import read_recent_requests, restore
from services.scheduler.reading import TOPIC_ORDER, Reader, Refused
from services.scheduler.selection import Rules
from services.scheduler.shard import Shard, ShardRules
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    HOST_LIMITS,
    HOST_PARAMETERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
)
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import Clock
from shared.runtime.consumer import Batch, Positions
from shared.runtime.kafka import make_consumer
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.store.snapshot import load_shard

log = structlog.get_logger(__name__)

TOPICS = (
    PAGE_SIGNALS,
    CRAWL_OUTCOMES,
    PAGE_UPDATES,
    PAGE_PARAMETERS,
    HOST_PARAMETERS,
    HOST_LIMITS,
)

P = ParamSpec("P")
T = TypeVar("T")


class ShardThread:
    """The one thread in which shards are looked at and changed: no locks, and a free event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "shards")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function there, after all that was asked for before."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let it finish what it has at hand."""
        self._executor.shutdown()


def shard_rules(settings: Settings, clock: Clock) -> ShardRules:
    """The rules of the settings."""
    days = settings.default_max_age_days
    return ShardRules(
        selection=Rules(
            request_timeout=clock.span(settings.request_timeout_seconds),
            speed=clock.speed,
            uniform=settings.policy == "uniform",
        ),
        signal_delay=settings.signal_delay_seconds,
        failed_retry=settings.failed_retry_seconds,
        default_max_age_days=float("inf") if days is None else days,
        default_host_rate=settings.default_host_crawls_per_second,
    )


class SchedulerHandler:
    """Keeps the shards of the assigned partitions as the topics say."""

    def __init__(
        self, settings: Settings, clock: Clock, publisher: Publisher, thread: ShardThread
    ) -> None:
        self.shards: dict[int, Shard] = {}
        """Only to be touched in the shards' thread."""
        self._settings = settings
        self._clock = clock
        self._publisher = publisher
        self._thread = thread
        self._rules = shard_rules(settings, clock)
        self._behind: dict[tuple[str, int], int] = {}

    @property
    def catching_up(self) -> int:
        """Partitions whose past is not applied yet."""
        return len(self._behind)

    async def assigned(self, partitions: set[int]) -> Positions:
        """Load shards from Postgres, and what is in flight from Kafka."""
        positions: dict[tuple[str, int], int] = {}
        for number in sorted(partitions):
            snapshot = await asyncio.to_thread(
                load_shard, self._settings.database_url.get_secret_value(), number
            )
            positions |= snapshot.positions
            shard = await self._thread.run(Shard.from_snapshot, snapshot, self._rules)
            await self._thread.run(self.shards.__setitem__, number, shard)
        requests = await read_recent_requests(self._settings, partitions)
        waiting = await self._thread.run(self._restore, requests)
        behind = await self._ends_ahead(partitions, positions)
        await self._thread.run(self._await_past, behind, partitions)
        log.info("shards loaded", shards=len(partitions), in_flight=waiting, behind=len(behind))
        return positions

    def _restore(self, requests: dict[int, list[CrawlRequest]]) -> int:
        return sum(restore(self.shards[number], sent) for number, sent in requests.items())

    async def _ends_ahead(
        self, partitions: set[int], positions: Positions
    ) -> dict[tuple[str, int], int]:
        """Where each topic partition ends now, if there is something to read before that."""
        consumer = make_consumer(self._settings)
        await consumer.start()
        try:
            names = {
                TopicPartition(self._settings.topic(topic.name), number): (topic.name, number)
                for topic in TOPICS
                for number in partitions
            }
            consumer.assign(list(names))
            ends = await consumer.end_offsets(list(names))
            begins = await consumer.beginning_offsets(list(names))
        finally:
            await consumer.stop()
        return {
            key: ends[tp]
            for tp, key in names.items()
            if ends[tp] > max(begins[tp], positions.get(key, 0))
        }

    def _await_past(self, behind: dict[tuple[str, int], int], partitions: set[int]) -> None:
        self._behind |= behind
        now = self._clock.now()
        for number in partitions:
            self.shards[number].filled_until = now
        self._note_caught_up()

    def _note_caught_up(self) -> None:
        waiting = {partition for _, partition in self._behind}
        for number, shard in self.shards.items():
            shard.is_caught_up = number not in waiting
        metrics.PAGES.set(sum(shard.count for shard in self.shards.values()))

    async def revoked(self, partitions: set[int]) -> None:
        """Forget shards."""
        await self._thread.run(self._forget, partitions)

    def _forget(self, partitions: set[int]) -> None:
        for number in partitions:
            self.shards.pop(number, None)
        self._behind = {key: end for key, end in self._behind.items() if key[1] not in partitions}
        self._note_caught_up()

    async def handle(self, batch: Batch) -> None:
        """Apply a batch."""
        for refused in await self._thread.run(self._apply, batch):
            await self._publisher.dead_letter(refused.record, "scheduler", refused.reason)

    def _apply(self, batch: Batch) -> list[Refused]:
        reader = Reader(Acceptance.at_present(self._settings, self._clock))
        for topic in TOPIC_ORDER:
            for partition, records in batch.get(topic, {}).items():
                reader.apply(self.shards[partition], topic, records)
                end = self._behind.get((topic, partition))
                if end is not None and records[-1].offset + 1 >= end:
                    del self._behind[topic, partition]
        self._note_caught_up()
        return reader.refused
