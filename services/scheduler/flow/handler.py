"""The shards of this process, and what Kafka tells them."""

import asyncio
import time
from collections import ChainMap, Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

import structlog
from aiokafka.errors import KafkaError

from services.scheduler import metrics
from services.scheduler.flow.applying import BatchWork
from services.scheduler.flow.away import Away, together
from services.scheduler.flow.bounds import Bounds, bounds_of
from services.scheduler.flow.loading import build_shard, shard_rules
from services.scheduler.flow.reader import Reader
from services.scheduler.flow.recovery import (
    partitions_of,
    read_recent_requests,
    requests_of,
    restore,
    settle_tokens,
)
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.splitting import begin_anew
from services.scheduler.flow.traces import PageTraces
from services.scheduler.state.shard import Shard
from shared.contracts.databases import Database
from shared.contracts.layout import Layout
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
from shared.runtime.batches import Batch, Positions
from shared.runtime.clock import Clock
from shared.runtime.databases import databases_of
from shared.runtime.isolation import BadShare, Count, TooManyBadMessages
from shared.runtime.kafka import may_pass
from shared.runtime.publisher import Publisher
from shared.runtime.retrying import Attempts, until_it_passes
from shared.runtime.settings import Settings
from shared.store.positions import ESTIMATOR, read_applied
from shared.store.rights import SCHEDULER, is_waited_for, reason_why_not
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

STAGE = "scheduler"

LOADED_AT_ONCE = 2
"""Shards: while the rows of one are put together, the next is read."""

OVERTAKEN_SECONDS = 3.0
"""What a topic no longer has is in the database within this, if an estimator has read it."""

APPLIED_LOOK_SECONDS = 0.5

P = ParamSpec("P")
T = TypeVar("T")


class SchedulerHandler:
    """Keeps the shards of the assigned partitions as the topics say."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        publisher: Publisher,
        thread: ShardThread,
        stopping: asyncio.Event | None = None,
        traces: PageTraces | None = None,
    ) -> None:
        self.shards: dict[int, Shard] = {}
        """Only to be touched in the shards' thread."""
        self._settings = settings
        self._databases = databases_of(settings)
        self.away = Away(self._databases)
        """Databases whose shards cannot be loaded, where others can."""
        self._clock = clock
        self._publisher = publisher
        self._thread = thread
        self._traces = traces
        self._rules = shard_rules(settings, clock)
        self._behind: dict[tuple[str, int], int] = {}
        self._stopping = stopping or asyncio.Event()
        self._bad_share = BadShare.of(settings)
        self._trouble: str | None = None
        self.progressed_at = time.monotonic()
        """Wall time of the last sign of life, for the watchdog."""

    @property
    def catching_up(self) -> int:
        """Partitions whose past is not applied yet."""
        return len(self._behind)

    @property
    def trouble(self) -> str | None:
        """Why shards cannot be loaded; None: all is well."""
        return self._trouble or self.away.trouble

    async def assigned(self, partitions: set[int]) -> Positions:
        """Load shards from Postgres, and what is in flight from Kafka; waits for both.

        Of several databases one is not waited for (`away`).

        Where topics no longer have what the database has not applied yet, it is given some time to.

        Raises:
            psycopg.OperationalError, KafkaError: the worker stops while one of them is away.
        """
        loads = [
            self.away.unless_away(database, shards, self._load(database, shards))
            for database, shards in self._databases.shared(partitions).items()
        ]
        return dict(ChainMap(*map(dict, await together(*loads))))

    async def _load(self, database: Database, partitions: set[int]) -> Positions:
        began = time.monotonic()
        layout, claim = await self._retried(
            asyncio.to_thread, begin_anew, database.url, partitions, database.held
        )
        while True:
            loaded, requests, positions = await self._read_all(partitions, layout)
            read = time.monotonic()
            begins, ends = await self._retried(self._bounds, partitions)
            gone = {
                key: begin for key, begin in begins.items() if positions.get(key, begin) < begin
            }
            if not gone or not await self._applied(gone, began + OVERTAKEN_SECONDS):
                break
        behind = {
            key: end for key, end in ends.items() if end > max(begins[key], positions.get(key, 0))
        }
        self._trouble = None
        shards = {number: shard for number, (shard, _) in loaded.items()}
        waiting = await asyncio.to_thread(self._restore, shards.values(), requests, claim)
        await self._thread.run(self._take_over, shards, behind)
        log.info(
            "shards loaded",
            shards=len(partitions),
            in_flight=waiting,
            behind=len(behind),
            seconds_reading=round(read - began, 2),
            seconds=round(time.monotonic() - began, 2),
        )
        return positions

    async def _read_all(
        self, partitions: set[int], layout: Layout
    ) -> tuple[dict[int, tuple[Shard, Positions]], dict[int, list[CrawlRequest]], Positions]:
        """Shards as the database has them, the last requests, and the positions of all shards."""
        is_loaded = asyncio.Event()
        loaded, requests = await together(
            self._load_all(partitions, is_loaded),
            self._retried(
                read_recent_requests, self._settings, partitions_of(partitions, layout), is_loaded
            ),
        )
        positions: dict[tuple[str, int], int] = {}
        for _, known in loaded.values():
            positions |= known
        return loaded, requests, positions

    async def _applied(self, gone: Mapping[tuple[str, int], int], until: float) -> bool:
        """Whether the database has applied what topics no longer have; waits for it.

        Estimators may have read it, and not committed it yet. If they have not, it is lost to all,
        and nobody has to wait for it.

        Args:
            gone: where topics begin, beyond what the database had applied.
            until: wall time after which it is not waited for.
        """
        numbers = {number for _, number in gone}
        log.warning(
            "topics no longer have what the database has not applied: waiting for it",
            places=sorted(f"{topic}/{number} before {at}" for (topic, number), at in gone.items()),
        )
        while time.monotonic() < until and not self._stopping.is_set():
            self._note_progress()
            await asyncio.sleep(APPLIED_LOOK_SECONDS)
            found: dict[tuple[str, int], int] = {}
            for database, shards in self._databases.shared(numbers).items():
                found |= await self._retried(
                    asyncio.to_thread, read_applied, database.url, ESTIMATOR, shards
                )
            if all(found.get(key, 0) >= at for key, at in gone.items()):
                return True
        return False

    async def _load_all(
        self, partitions: set[int], is_loaded: asyncio.Event
    ) -> dict[int, tuple[Shard, Positions]]:
        """Shards from Postgres, and the positions that they reflect."""
        gate = asyncio.Semaphore(LOADED_AT_ONCE)

        async def load(number: int) -> tuple[Shard, Positions]:
            async with gate:
                url = self._databases.of(number).url
                snapshot = await self._retried(
                    asyncio.to_thread, load_shard, url, number, self._note_progress
                )
                shard = await asyncio.to_thread(build_shard, snapshot, self._rules)
                self._note_progress()
                return shard, snapshot.positions

        numbers = sorted(partitions)
        shards = await together(*map(load, numbers))
        is_loaded.set()
        return dict(zip(numbers, shards, strict=True))

    def _note_progress(self) -> None:
        self.progressed_at = time.monotonic()

    async def _retried(
        self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do something again until the server that it needs is there."""
        async for attempt in self._attempts():
            with attempt:
                return await work(*args, **kwargs)
        raise RuntimeError("unreachable: the last attempt returns or raises")

    def _attempts(self) -> Attempts:
        passes = _may_pass_of_kafka if self._databases.are_several else _may_pass
        return until_it_passes(self._stopping, passes, self._note_failure)

    def _note_failure(self, error: BaseException) -> None:
        self.progressed_at = time.monotonic()
        why = reason_why_not(error, SCHEDULER)
        self._trouble = f"shards cannot be loaded: {why}"
        log.warning("shards cannot be loaded yet", error=why)

    async def _bounds(self, partitions: set[int]) -> Bounds:
        """Where each topic partition begins and ends now."""
        return await bounds_of(self._settings, TOPICS, partitions)

    def _restore(
        self, shards: Iterable[Shard], requests: dict[int, list[CrawlRequest]], claim: str
    ) -> int:
        """Make shards as they were that nobody has yet, and find what is to be crawled first.

        Returns:
            how many requests are in flight.
        """
        waiting = 0
        for shard in shards:
            shard.claim = claim
            waiting += restore(shard, requests_of(shard, requests))
            shard.filled_until = self._clock.now()
            shard.prepare(shard.filled_until)
        return waiting

    def _take_over(self, shards: dict[int, Shard], behind: dict[tuple[str, int], int]) -> None:
        """Make shards ours; they emit nothing before what is `behind` is read."""
        self.shards.update(shards)
        self._behind |= behind
        self._note_caught_up()

    def _note_caught_up(self) -> None:
        waiting = {partition for _, partition in self._behind}
        for number, shard in self.shards.items():
            shard.is_caught_up = number not in waiting
            if shard.is_caught_up:
                settle_tokens(shard)
        metrics.PAGES.set(sum(shard.count for shard in self.shards.values()))

    async def revoked(self, partitions: set[int]) -> None:
        """Forget shards, also such as could not be loaded so far."""
        self._trouble = None
        self.away.forget(partitions)
        await self._thread.run(self._forget, partitions)

    def _forget(self, partitions: set[int]) -> None:
        for number in partitions:
            self.shards.pop(number, None)
        self._behind = {key: end for key, end in self._behind.items() if key[1] not in partitions}
        self._note_caught_up()

    async def handle(self, batch: Batch) -> None:
        """Apply a batch; what always fails is set aside.

        Raises:
            TooManyBadMessages: the batch has too many; none is set aside.
            KafkaError: what is set aside could not be stored.
        """
        work = BatchWork(self._reader(), self.shards, batch, self._traces, self._reach)
        while not await self._thread.run(self._go_on, work):
            self.progressed_at = time.monotonic()
        refused = work.refused
        read = {topic: sum(map(len, parts.values())) for topic, parts in batch.items()}
        bad = Counter(letter.record.topic for letter in refused)
        counts = {t: Count(n, bad[self._settings.topic(t)]) for t, n in read.items()}
        try:
            self._bad_share.check(counts, time.monotonic())
        except TooManyBadMessages:
            # What is no longer kept up must not be reported: its budget goes to the others.
            await self._thread.run(self._forget, set(self.shards))
            raise
        letters = [
            await self._publisher.dead_letter(letter.record, STAGE, letter.reason)
            for letter in refused
        ]
        # Not a flush: reports go the same way, and each must hear of its own.
        await asyncio.gather(*letters)
        self._bad_share.add(counts, time.monotonic())

    def _go_on(self, work: BatchWork) -> bool:
        is_done = work.turn()
        if is_done:
            self._note_caught_up()
        return is_done

    def _reader(self) -> Reader:
        return Reader(Acceptance.at_present(self._settings, self._clock))

    async def reached(self, positions: Positions) -> None:
        """All before these positions is applied, though what came last is no record."""
        if self._behind.keys() & positions.keys():
            await self._thread.run(self._reach_all, positions)

    async def unread(self, ends: Positions) -> None:
        """These are not read yet, after a time in which nothing was: first of all they are.

        Among them may be the answer to a request whose time has passed meanwhile.
        """
        await self._thread.run(self._wait_for, ends)

    def _wait_for(self, ends: Positions) -> None:
        self._behind |= ends
        self._note_caught_up()

    def _reach_all(self, positions: Positions) -> None:
        for key, position in positions.items():
            self._reach(key, position)
        self._note_caught_up()

    def _reach(self, key: tuple[str, int], position: int) -> None:
        end = self._behind.get(key)
        if end is not None and position >= end:
            del self._behind[key]


def _may_pass(error: BaseException) -> bool:
    """Whether waiting may help: a server is away or busy, or refuses for now."""
    return is_waited_for(error) or _may_pass_of_kafka(error)


def _may_pass_of_kafka(error: BaseException) -> bool:
    """The same, of the broker alone."""
    return isinstance(error, KafkaError) and may_pass(error)
