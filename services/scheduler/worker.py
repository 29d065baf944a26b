"""The scheduler's process."""

from collections.abc import Coroutine
from typing import Any

import faust
import msgspec
import structlog
from aiohttp.web import Response
from aiokafka import ConsumerRecord

from services.scheduler.explain import page_state, shard_state
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.handler import TOPICS, SchedulerHandler
from services.scheduler.flow.imported import ImportWatch
from services.scheduler.flow.pacer import Pacer, Plans
from services.scheduler.flow.reporting import Reporting
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.splitting import SplitWatch
from services.scheduler.flow.traces import PageTraces
from services.scheduler.flow.unanswered_pages import UnansweredWriter
from services.scheduler.state.shard import Shard
from services.scheduler.warm_up import warm_up
from shared.contracts.codec import BadMessage, decode
from shared.contracts.databases import Database
from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.contracts.layout import Layout
from shared.contracts.messages import Multipliers
from shared.contracts.topics import CRAWL_REQUESTS, MULTIPLIERS
from shared.pacing.slots import SlotTimeline
from shared.policy.compiled import LateKernels
from shared.rules.host_objectives import HostObjectives
from shared.runtime.consumer import BatchConsumer
from shared.runtime.database_threads import have_threads_for
from shared.runtime.databases import at_database, databases_of
from shared.runtime.follower import Follower
from shared.runtime.kafka import appended_at
from shared.runtime.kept_answer import KeptAnswer
from shared.runtime.late_kernels import watch_kernels
from shared.runtime.metrics import SHARDS_TO_SPLIT
from shared.runtime.precedence import Precedence
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.slices import Pace
from shared.runtime.tracing import make_tracing
from shared.runtime.worker import WorkerService, end_now, make_app, run_app
from shared.store.growth_watch import GrowthWatch
from shared.store.rights import SCHEDULER
from shared.store.stream_topics import StoredTopics

log = structlog.get_logger(__name__)

NAME = "scheduler"
GROUP = "freshet-scheduler"

SEND_SECONDS = 1.0
"""Requests that wait for the broker get so long to be sent before a rebalance."""

RESTS = 8.0
"""From one batch of messages to the next, as a multiple of what one takes: most of a small one are
calls for each of many shards. No longer than four ticks."""

NO_SECONDS = 0.02
"""Long enough to see that nothing is waiting."""

REQUEST_SHARE = 0.25
"""A broker that has not answered for this part of the session timeout is asked on a new connection;
what was on its way on the old one is then lost rather than late."""


class Scheduler(WorkerService):
    """Reads what happens to pages, writes `crawl-requests` and `demand-curves`."""

    database_user = NAME

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.timeline = SlotTimeline()
        self._thread = ShardThread()
        self._publisher = Publisher(settings)
        self._requests = Publisher(
            settings, self._is_sure, REQUEST_SHARE * settings.kafka_session_timeout_seconds
        )
        """Of `crawl-requests` alone: what waits there must not be sent once the shards are lost."""
        self.tracing = make_tracing(settings, NAME)
        self._traces = PageTraces(self.tracing) if self.tracing is not None else None
        self._handler = SchedulerHandler(
            settings, self.clock, self._publisher, self._thread, self.stopping, self._traces
        )
        self._databases = databases_of(settings)
        self._follower = Follower(settings, MULTIPLIERS, self._receive_multipliers)
        self._reporting = Reporting(
            settings, self.clock, self._publisher, self._thread, self._handler, self.timeline
        )
        self._consumer: BatchConsumer | None = None
        self._pacer: Pacer | None = None

    async def open(self) -> None:
        """Compile, connect, and join the group."""
        have_threads_for(self._databases)
        await self._thread.run(warm_up, HostObjectives(self.settings.objectives))
        await self._publisher.start()
        await self._requests.start()
        await self._follower.start()
        self._consumer = BatchConsumer(
            self.settings,
            GROUP,
            TOPICS,
            self._handler,
            pace=Pace(self.settings.tick_seconds, rests=RESTS),
            before_leaving=self._send_the_rest,
            loads_beside=True,
            # The database may not know yet what was crawled already.
            holding=(Precedence.of_pages(self.settings),),
            reached=self._handler.reached,
            unread=self._handler.unread,
            known_topics=StoredTopics(self._databases, NAME, writes=False),
            # What is gone may be in the database, and what is in flight must be on the topic.
            written_out=self._is_written_out,
            absent=self._handler.away.absent,
            written=(CRAWL_REQUESTS,),
        )
        self._pacer = Pacer(
            self.settings,
            self.clock,
            Plans(self.timeline, lambda: self._follower.known_at, self.clock_offset.ahead),
            self._consumer,
            self._handler,
            self._thread,
            Emitter(self.settings, self._requests),
            self._traces,
        )
        await self._consumer.start()

    async def close(self) -> None:
        """Disconnect; what was handed to the producer is sent first."""
        await self._requests.stop()
        await self._publisher.stop()
        if self._consumer is not None:
            await self._consumer.stop()
        await self._follower.stop()
        self._thread.close()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Reading, ticking and reporting."""
        consumer, pacer = self._opened
        return [
            consumer.run(self.stopping),
            self._follower.run(self.stopping),
            self._follower.keep_up(self.stopping),
            pacer.run(self.stopping),
            self._reporting.run_reports(self.stopping),
            self._reporting.run_demand(self.stopping),
            *(loop for one in self._databases.each for loop in self._loops_of(one)),
            watch_kernels(LateKernels().names, self.stopping),
        ]

    def _loops_of(self, database: Database) -> list[Coroutine[Any, Any, None]]:
        """Following what others do to the shards of a database, and telling it what nobody
        answers."""
        consumer, pacer = self._opened
        settings = at_database(self.settings, database)
        watched = consumer.partition_watch, SHARDS_TO_SPLIT.set
        growth = GrowthWatch(database.url, *watched, SCHEDULER)
        # One says how far a growth is: in the end all databases know all of it.
        note = growth.note if database == self._databases.home else _note_nothing

        def shards() -> dict[int, Shard]:
            loaded = self._handler.shards
            return {n: loaded[n] for n in self._databases.had_by(database, list(loaded))}

        splits = SplitWatch(settings, self._thread, shards, consumer, pacer, note)
        imports = ImportWatch(settings, self._thread, shards)
        unanswered = UnansweredWriter(
            settings, self._thread, shards, self.clock, pacer.unsent_since
        )
        return [watch.run(self.stopping) for watch in (imports, splits, unanswered)]

    def not_ready(self) -> str | None:
        """Wait for the group, the shards and the coordinator."""
        if self._consumer is not None and self._consumer.trouble is not None:
            return self._consumer.trouble
        if self._handler.trouble is not None:
            return self._handler.trouble
        if self._consumer is None or not self._consumer.settled:
            return "waiting for the consumer group to hand out the shards"
        if self._consumer.is_loading or self._handler.catching_up:
            return self._what_is_loading(self._consumer)
        if self.timeline.newest is None:
            return "waiting for the coordinator's first `multipliers`"
        return None

    def _what_is_loading(self, consumer: BatchConsumer) -> str:
        if consumer.is_loading:
            return "shards are being loaded"
        return f"{self._handler.catching_up} partitions have a past that is not applied yet"

    def progressed_at(self) -> float:
        """Wall time of the last turn of the slowest loop."""
        consumer, pacer = self._opened
        reading = max(consumer.progressed_at, self._handler.progressed_at)
        return min(reading, pacer.progressed_at, self._follower.progressed_at)

    @property
    def _opened(self) -> tuple[BatchConsumer, Pacer]:
        if self._consumer is None or self._pacer is None:
            raise RuntimeError("the scheduler is not open")
        return self._consumer, self._pacer

    def _is_sure(self) -> bool:
        """Whether what is sent now cannot come beside what another scheduler sends."""
        return self._consumer is None or self._consumer.is_sure

    async def _is_written_out(self) -> bool:
        """Whether a shard may be loaded anew; who stops loads nothing, and waits for no broker."""
        return self.stopping.is_set() or await self._opened[1].is_written_out()

    async def _send_the_rest(self) -> None:
        """Before shards may go to another scheduler, it must find all requests on the topic.

        What could not be sent in time must never be: the new owner has read the topic without it.
        A producer forgets nothing, so the process ends.
        """
        patience = SEND_SECONDS if self._is_sure() else NO_SECONDS
        if not await self._requests.is_empty_within(patience):
            end_now("the shards go elsewhere, and requests that were not sent must not be any more")

    def _receive_multipliers(self, record: ConsumerRecord) -> None:
        try:
            message = decode(Multipliers, record.value)
        except BadMessage as error:
            log.warning("multipliers that cannot be read are left out", error=str(error))
            return
        self.timeline.take(message, appended_at(record))

    def _multiplier(self) -> float:
        plan = self.timeline.at(self.clock.now())
        return plan.multiplier if plan is not None else 0.0

    async def describe_shards(self) -> list[dict[str, Any]]:
        """All shards of this process, for the page `/shards`."""
        shards = self._handler.shards
        return await self._thread.run(
            lambda: [shard_state(shards[n], self._multiplier()) for n in sorted(shards)]
        )

    async def describe_page(self, url: str) -> dict[str, Any] | None:
        """A page, for `/pages`; None: it is not in this process.

        Raises:
            BadUrl: no page has such a URL.
        """
        identity = identify(url)
        now = self.clock.now()
        return await self._thread.run(self._page_state, identity, now, self._multiplier())

    def _page_state(
        self, identity: PageIdentity, now: float, multiplier: float
    ) -> dict[str, Any] | None:
        for number, shard in self._handler.shards.items():
            if shard.layout.shard_of(identity.host) == number:
                return page_state(shard, identity, now, multiplier)
        return None


def _note_nothing(_: Layout) -> None:
    """Somebody else does."""


def _json(content: object, status: int = 200) -> Response:
    return _answer(msgspec.json.encode(content), status)


def _answer(body: bytes, status: int = 200) -> Response:
    return Response(body=body, status=status, content_type="application/json")


def add_pages(app: faust.App, scheduler: Scheduler) -> None:
    """Add `/shards` and `/pages?url=` to the worker's web server."""

    async def described() -> bytes:
        return msgspec.json.encode({"shards": await scheduler.describe_shards()})

    # It looks through all pages, in the thread that fills slots: a few who ask again and again
    # would have all of its time.
    kept = KeptAnswer(described)

    @app.page("/shards")  # type: ignore[untyped-decorator]
    async def shards(_web: Any, _request: Any) -> Response:
        return _answer(await kept.body())

    @app.page("/pages")  # type: ignore[untyped-decorator]
    async def pages(_web: Any, request: Any) -> Response:
        try:
            found = await scheduler.describe_page(request.query.get("url", ""))
        except BadUrl as error:
            return _json({"error": f"not a URL of a page: {error}"}, 400)
        if found is None:
            return _json({"error": "this scheduler does not have the page"}, 404)
        return _json(found)


def make_scheduler_app(settings: Settings) -> faust.App:
    """The Faust app of the scheduler."""
    scheduler = Scheduler(settings)
    app = make_app(NAME, scheduler)
    add_pages(app, scheduler)
    return app


def main() -> None:
    """Run the scheduler until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_scheduler_app(settings), settings)
