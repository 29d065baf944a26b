"""A batch of the estimator: apply, learn, announce, commit; again from the database if it failed.

The shards in memory are a cache. Whatever goes wrong with the database, the shards of the batch
are loaded anew, and the batch is applied again from the positions that were loaded with them; so
it does not matter whether a commit that was cut off had come through.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping

import psycopg
import structlog
import tenacity
from aiokafka import ConsumerRecord

from services.estimator import metrics
from services.estimator.announcing import Announcements, Announcer
from services.estimator.application import ShardEffects, apply_records
from services.estimator.decoding import Refused
from services.estimator.learning import announcements, host_announcements, learn
from services.estimator.persistence import Store
from services.estimator.refitting import Refits, merged, refit
from services.estimator.shard import Shard
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_PARAMETERS, PAGE_PARAMETERS
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import Clock
from shared.runtime.consumer import Batch, Positions
from shared.runtime.settings import Settings
from shared.store.imports import StoreBusy
from shared.store.positions import Superseded
from shared.store.snapshot import load_for_learning

log = structlog.get_logger(__name__)

_TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError, Superseded, StoreBusy)

ShardRecords = dict[int, dict[str, list[ConsumerRecord]]]
"""Shard → topic → records."""


class EstimatorHandler:
    """Owns the shards of this process (see `shared.runtime.consumer.BatchHandler`)."""

    def __init__(
        self, settings: Settings, clock: Clock, announcer: Announcer, stopping: asyncio.Event
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._announcer = announcer
        self._stopping = stopping
        self._database_url = settings.database_url.get_secret_value()
        self._store = Store(self._database_url, settings.partitions)
        self._shards: dict[int, Shard] = {}
        self._refits = Refits(settings.prior_refit_days)
        self._stale: set[int] = set()
        self._positions: dict[tuple[str, int], int] = {}
        self.trouble: str | None = "not connected to the database yet"
        """Why nothing goes on; None: all is well."""
        self.progressed_at = time.monotonic()
        """Wall time of the last sign of life, for the watchdog."""

    async def open(self) -> None:
        """Connect to the database; waits for it.

        Raises:
            StoreMismatch: it is not the database of these settings.
        """
        async for attempt in self._attempts():
            with attempt:
                await self._connect()
        self.trouble = None

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.to_thread(self._store.close)

    async def assigned(self, partitions: set[int]) -> Positions:
        """Load shards; the positions that they reflect."""
        async for attempt in self._attempts():
            with attempt:
                await self._connect()
                await self._load(partitions - self._shards.keys())
        self.trouble = None
        self._report_size()
        return {key: offset for key, offset in self._positions.items() if key[1] in partitions}

    async def revoked(self, partitions: set[int]) -> None:
        """Forget shards; all their effects are in the database."""
        for shard in partitions:
            self._shards.pop(shard, None)
        self._stale -= partitions
        self._positions = {k: v for k, v in self._positions.items() if k[1] not in partitions}
        self._report_size()

    async def handle(self, batch: Batch) -> None:
        """Apply a batch and make it durable, with its positions.

        Raises:
            KafkaError: something could not be published; nothing of the batch is durable.
            psycopg.OperationalError: the worker stops while the database is away.
        """
        records: ShardRecords = {}
        for topic, partitions in batch.items():
            for shard, part in partitions.items():
                records.setdefault(shard, {})[topic] = part
        async for attempt in self._attempts():
            with attempt:
                await self._connect()
                reloaded = self._stale & records.keys()
                await self._load(reloaded)
                await self._process(self._not_applied(records, reloaded))
        self.trouble = None

    def _attempts(self) -> tenacity.AsyncRetrying:
        return tenacity.AsyncRetrying(
            stop=tenacity.stop_when_event_set(self._stopping),  # type: ignore[arg-type]
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
            retry=tenacity.retry_if_exception_type(_TRANSIENT),
            before_sleep=self._note_failure,
            reraise=True,
        )

    def _note_failure(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.progressed_at = time.monotonic()
        self._stale = set(self._shards)
        self.trouble = f"the database cannot be written: {error}"
        metrics.RETRIES.inc()
        log.warning("beginning again from the database", error=str(error).strip())

    async def _connect(self) -> None:
        if not self._store.is_open:
            await asyncio.to_thread(self._store.open)

    async def _load(self, shards: Iterable[int]) -> None:
        for number in sorted(shards):
            snapshot = await asyncio.to_thread(load_for_learning, self._database_url, number)
            self._positions = {k: v for k, v in self._positions.items() if k[1] != number}
            self._positions |= snapshot.positions
            self._shards[number] = await asyncio.to_thread(Shard.load, snapshot)
            self._stale.discard(number)
            self.progressed_at = time.monotonic()

    def _not_applied(self, records: ShardRecords, reloaded: set[int]) -> ShardRecords:
        """The records without those that the reloaded shards reflect already."""
        left: ShardRecords = {}
        for shard in sorted(records):
            topics = records[shard]
            if shard in reloaded:
                topics = {
                    topic: [r for r in part if r.offset >= self._positions.get((topic, shard), 0)]
                    for topic, part in topics.items()
                }
            if any(topics.values()):
                left[shard] = {topic: part for topic, part in topics.items() if part}
        return left

    async def _process(self, records: ShardRecords) -> None:
        if not records:
            return
        after = {
            (topic, shard): part[-1].offset + 1
            for shard, topics in records.items()
            for topic, part in topics.items()
        }
        refits = self._refits.are_due(self._shards.values(), self._clock.now())
        refits = refits and not self._stale
        done, messages, spent = await asyncio.to_thread(
            self._apply, records, Acceptance.at_present(self._settings, self._clock), refits=refits
        )
        for part in done:
            # Of a shard that was only refitted, a position that stays shows whose it is.
            number = part.shard.number
            if number not in records:
                fence = (CRAWL_OUTCOMES.name, number)
                after[fence] = self._positions.get(fence, 0)
        refused: list[Refused] = [letter for part in done for letter in part.refused]
        with metrics.WORK_SECONDS.labels("announce").time():
            announced = await self._announcer.publish(messages, refused)
        with metrics.WORK_SECONDS.labels("store").time():
            await asyncio.to_thread(
                self._store.commit, done, self._positions, after, announced, self._clock.now()
            )
        if refits:
            self._refits.noted(self._shards.values(), self._clock.now(), spent)
        self._positions |= after
        self.progressed_at = time.monotonic()
        self._report_size()

    def _apply(
        self,
        records: Mapping[int, Mapping[str, list[ConsumerRecord]]],
        acceptance: Acceptance,
        *,
        refits: bool,
    ) -> tuple[list[ShardEffects], Announcements, float]:
        """The work of the processor, in a thread; and the seconds that a refit took."""
        with metrics.WORK_SECONDS.labels("apply").time():
            delay = self._settings.signal_delay_seconds
            done = [
                apply_records(self._shards[shard], topics, acceptance, delay)
                for shard, topics in records.items()
            ]
        with metrics.WORK_SECONDS.labels("learn").time():
            for part in done:
                learn(part)
        started = time.perf_counter()
        if refits:
            with metrics.WORK_SECONDS.labels("refit").time():
                done = self._refit(done)
        spent = time.perf_counter() - started
        material, now, messages = self._settings.material_change, acceptance.now, {}
        for part in done:
            number = part.shard.number
            messages[HOST_PARAMETERS.name, number] = host_announcements(part, material, now)
            messages[PAGE_PARAMETERS.name, number] = announcements(part, material, now)
        metrics.FITTED.inc(sum(part.learned.size for part in done))
        metrics.ANNOUNCED.inc(sum(map(len, messages.values())))
        return done, messages, spent

    def _refit(self, done: list[ShardEffects]) -> list[ShardEffects]:
        shards = [self._shards[number] for number in sorted(self._shards)]
        refitted = refit(shards, self._settings.material_change)
        return merged({part.shard.number: part for part in done}, shards, refitted)

    def _report_size(self) -> None:
        metrics.PAGES.set(sum(len(shard.pages) for shard in self._shards.values()))
