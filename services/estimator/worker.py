"""The estimator's process."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from services.estimator.announcing import KafkaAnnouncer
from services.estimator.compilation import warm_up
from services.estimator.handler import EstimatorHandler
from services.estimator.lanes import Lanes
from services.estimator.remembering import Remembering
from services.estimator.retention import Retention
from shared.contracts.databases import Database
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    HOST_LIMITS,
    HOST_PARAMETERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
)
from shared.policy.compiled import LateKernels
from shared.runtime.abreast import Abreast
from shared.runtime.consumer import BatchConsumer
from shared.runtime.database_threads import have_threads_for
from shared.runtime.databases import at_database, databases_of
from shared.runtime.late_kernels import watch_kernels
from shared.runtime.metrics import SHARDS_TO_SPLIT
from shared.runtime.precedence import Precedence
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.slices import Pace
from shared.runtime.tracing import make_tracing
from shared.runtime.worker import WorkerService, end_now, make_app, run_app
from shared.store.growth_watch import GrowthWatch
from shared.store.positions import Forgotten
from shared.store.rights import ESTIMATOR
from shared.store.stream_topics import StoredTopics

NAME = "estimator"
GROUP = "freshet-estimator"
RESTS: Final = 8.0
MOST_SECONDS: Final = 0.5
"""See `Pace`. A batch has a price for each shard, whether it has ten records of it or a hundred;
schedulers hear of signals and outcomes themselves, and nobody waits for what is learned of them."""

TOPICS = (PAGE_SIGNALS, CRAWL_OUTCOMES, PAGE_UPDATES, HOST_LIMITS)


class Estimator(WorkerService):
    """Reads what happens to pages, writes what is known of them."""

    database_user = NAME

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._publisher = Publisher(settings)
        self.tracing = make_tracing(settings, NAME)
        self._databases = databases_of(settings)
        announcer = KafkaAnnouncer(self._publisher)
        make = Lanes if self._databases.are_several else EstimatorHandler
        self._handler: Lanes | EstimatorHandler = make(
            settings, self.clock, announcer, self.stopping, self.tracing
        )
        self._consumer: BatchConsumer | None = None

    async def open(self) -> None:
        """Connect to the database and the broker, and join the group."""
        have_threads_for(self._databases)
        await asyncio.to_thread(warm_up)
        await self._handler.open()
        await self._publisher.start()
        lanes = self._handler if isinstance(self._handler, Lanes) else None
        self._consumer = BatchConsumer(
            self.settings,
            GROUP,
            TOPICS,
            self._handler,
            pace=Pace(self.settings.batch_linger_seconds, MOST_SECONDS, RESTS),
            reached=self._handler.reached,
            # A database that is away, or slow to be read, is to keep nobody else's shards waiting.
            loads_beside=lanes is not None,
            absent=lanes.absent if lanes is not None else None,
            known_topics=StoredTopics(self._databases, NAME, writes=True),
            written=(PAGE_PARAMETERS, HOST_PARAMETERS),
            holding=(Precedence.of_pages(self.settings), Abreast.of_crawls(self.settings)),
        )
        await self._consumer.start()

    async def close(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await self._consumer.stop()
        await self._publisher.stop()
        await self._handler.close()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Reading, dropping what is too old, and looking whether the database forgets."""
        return [
            _unless_forgotten(self._opened.run(self.stopping)),
            *(loop for one in self._databases.each for loop in self._loops_of(one)),
            self._growth().run(self.stopping),
            watch_kernels(LateKernels().names, self.stopping),
        ]

    def _loops_of(self, database: Database) -> list[Coroutine[Any, Any, None]]:
        settings = at_database(self.settings, database)
        handler = self._handler
        if isinstance(handler, Lanes):
            committed = handler.committed_by(database)
        else:
            committed = handler.committed
        remembering = Remembering(settings, committed)
        return [
            Retention(settings, self.clock).run(self.stopping),
            _unless_forgotten(remembering.run(self.stopping)),
        ]

    def _growth(self) -> GrowthWatch:
        url = self.settings.database_url.get_secret_value()
        return GrowthWatch(url, self._opened.partition_watch, SHARDS_TO_SPLIT.set, ESTIMATOR)

    def not_ready(self) -> str | None:
        """Wait for the database and the group."""
        if self._consumer is not None and self._consumer.trouble is not None:
            return self._consumer.trouble
        if self._handler.trouble is not None:
            return self._handler.trouble
        if self._consumer is None or not self._consumer.settled:
            return "waiting for the consumer group to hand out the shards"
        return None

    def progressed_at(self) -> float:
        """Wall time of the last turn of the loop, or of the last step within a batch."""
        if isinstance(self._handler, Lanes) and self._handler.are_all_busy:
            return self._handler.progressed_at
        return max(self._opened.progressed_at, self._handler.progressed_at)

    @property
    def _opened(self) -> BatchConsumer:
        if self._consumer is None:
            raise RuntimeError("the estimator is not open")
        return self._consumer


async def _unless_forgotten(loop: Coroutine[Any, Any, None]) -> None:
    """A loop, and the end of the process where the database has lost commits.

    What this process has in memory is worth nothing then; the next one loads what the database has,
    and reads the topics from there.
    """
    try:
        await loop
    except Forgotten as forgotten:
        end_now(str(forgotten))


def main() -> None:
    """Run the estimator until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Estimator(settings)), settings)
