"""The coordinator's process. One of them leads; see `Coordination` for what it decides.

All of them read the same topics and know the same, so that each can go on where another stops.

Its topics are read with `Follower`, not with Faust agents. An agent whose topic does not exist
yet when Faust's consumer starts ("Ignoring missing topic") was never handed a message of it; a
group of its own for each start leaves offsets behind on the broker. A follower starts when the
topics are there, needs no group, and shows the watchdog that it lives.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog
from aiokafka import ConsumerRecord
from aiokafka.structs import RecordMetadata
from msgspec import Struct
from msgspec.structs import replace

from services.coordinator import metrics
from services.coordinator.core import Coordination, Moment
from services.coordinator.history import DecisionHistory
from services.coordinator.leadership import Leadership
from services.coordinator.picture import Picture, State, add_picture
from services.coordinator.set_aside import Bad, BadRecords
from services.coordinator.views.serving import Asking, add_views
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.messages import Bandwidth, DemandCurve, GroupLimit, Multipliers
from shared.contracts.topics import (
    BANDWIDTH,
    CLAIM_KEY,
    DEMAND_CURVES,
    GROUP_LIMITS,
    MULTIPLIERS,
    Topic,
)
from shared.pacing.slots import KNOWN_AHEAD_SECONDS, is_late
from shared.runtime.follower import Follower
from shared.runtime.kafka import appended_at, may_pass
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.wall_time import WALL
from shared.runtime.worker import WorkerService, make_app, run_app
from shared.store.multipliers import Decided
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Struct)

NAME = "coordinator"

DECIDE_SECONDS = 1.0
"""Between two decisions, unless a new bandwidth asks for one at once."""

LEAST_SECONDS = 0.1
"""Between two decisions at least: what comes together is decided together."""

_TAIL = 1_000
_TAILS = {GROUP_LIMITS.name: 100_000}
"""Records that are read at a start: of limits all, as each group has its own."""

_NOTICE_SECONDS = 60.0
"""What keeps the system from crawling is logged so often."""

_LAST_SECONDS = 1.0
"""Bad records are given so long at the stop."""


class Coordinator(WorkerService):
    """Reads `bandwidth`, `group-limits` and `demand-curves`, writes `multipliers`."""

    database_user = NAME

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        database_url = settings.database_url.get_secret_value()
        self._wake = asyncio.Event()
        self._coordination = Coordination(
            settings.silent_after_seconds,
            settings.effective_lead_seconds,
            settings.group_crawls_per_second,
            work_conserving=settings.work_conserving,
        )
        self._leadership = Leadership(
            database_url,
            settings.instance,
            settings.coordinator_lease_seconds,
            self._newest_epoch,
            self._wake.set,
        )
        self._picture = Picture(self._coordination, lambda: self.broker.trouble is not None)
        self.views = Asking()
        """Answers what the page looks up."""
        self._history = DecisionHistory(database_url, self._oldest_kept)
        self._publisher = Publisher(settings)
        self._followers: dict[str, Follower] = {}
        self._bad = BadRecords()
        self._setting_aside: asyncio.Future[None] | None = None
        self._appended: dict[tuple[int, int], float | None] = {}
        """When the broker took the last message on `multipliers`, by its epoch and version."""
        self._is_caught_up = False
        self._decided_at = time.monotonic()
        self._noticed_at = -math.inf

    async def open(self) -> None:
        """Connect, and read what stands on the topics: first what was decided, then the rest."""
        await self._publisher.start()
        for topic, receive in (
            (MULTIPLIERS, self._receiver(Multipliers, self._on_multipliers)),
            (BANDWIDTH, self._receiver(Bandwidth, self._on_bandwidth)),
            (GROUP_LIMITS, self._receiver(GroupLimit, self._on_group_limit)),
            (DEMAND_CURVES, self._receiver(DemandCurve, self._on_demand)),
        ):
            await self._follow(topic, receive)
        self._is_caught_up = True

    async def close(self) -> None:
        """Disconnect."""
        self.views.stop()
        if self._setting_aside is not None:
            await asyncio.wait([self._setting_aside], timeout=_LAST_SECONDS)
            self._setting_aside.cancel()  # whoever leads next does it
            await asyncio.wait([self._setting_aside])
        for follower in self._followers.values():
            await follower.stop()
        await self._publisher.stop()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Follow topics, lead or watch the leader, ask which shards there are, decide, record."""
        return [
            *(follower.run(self.stopping) for follower in self._followers.values()),
            self._leadership.run(self.stopping),
            self._picture.there.run(self.settings.database_url.get_secret_value(), self.stopping),
            self._coordinate(),
            self._history.run(self.stopping),
        ]

    def not_ready(self) -> str | None:
        """Ready when the topics were read and a leader is known, this coordinator or another.

        Without a bandwidth it is ready too, and says so.
        """
        if not self._is_caught_up:
            return "reading what stands on the topics"
        if self._leadership.epoch:
            return None if self._coordination.leads_on else "making the first decision"
        if self._leadership.trouble is not None:
            return f"who leads is not known, ask the database: {self._leadership.trouble}"
        return None if self._leadership.leader else "waiting for a coordinator to lead"

    def progressed_at(self) -> float:
        """Wall time of the slowest loop's last turn."""
        return min([self._decided_at, *(f.progressed_at for f in self._followers.values())])

    def state(self) -> State:
        """What the page shows."""
        return self._picture.state(self._moment(), WALL.now(), self._leadership.leader)

    def _moment(self) -> Moment:
        now, stepped = self.clock.read()
        return Moment(now, time.monotonic(), self.clock.speed, stepped)

    def _oldest_kept(self) -> float:
        return self.clock.now() - self.settings.multiplier_history_kept_days * SECONDS_PER_DAY

    def _newest_epoch(self) -> int:
        return self._coordination.timeline.epoch

    async def _follow(self, topic: Topic, receive: Callable[[ConsumerRecord], None]) -> None:
        follower = Follower(self.settings, topic, receive, _TAILS.get(topic.name, _TAIL))
        self._followers[topic.name] = follower
        await follower.start()

    def _receiver(
        self, kind: type[M], take: Callable[[M, ConsumerRecord], None]
    ) -> Callable[[ConsumerRecord], None]:
        """A follower's callback: what cannot be taken is set aside for the dead letters."""

        def receive(record: ConsumerRecord) -> None:
            try:
                take(decode(kind, record.value), record)
            except BadMessage as error:
                self._bad.add(record, str(error))
                self._wake.set()

        return receive

    def _on_multipliers(self, message: Multipliers, record: ConsumerRecord) -> None:
        at = appended_at(record)
        self._appended = {(message.epoch, message.version): at}
        if is_late(message, at):
            self._coordination.leave_out(message)
            self._leadership.superseded(message.epoch, message.leader)
        elif self._coordination.receive_multipliers(message, self._moment()):
            self._leadership.superseded(message.epoch, message.leader)

    def _on_bandwidth(self, message: Bandwidth, _record: ConsumerRecord) -> None:
        if self._coordination.receive_bandwidth(message):
            self._wake.set()

    def _on_group_limit(self, message: GroupLimit, _record: ConsumerRecord) -> None:
        if self._coordination.groups.receive(message):
            self._wake.set()

    def _on_demand(self, message: DemandCurve, record: ConsumerRecord) -> None:
        if self._coordination.receive_demand(message, self._heard_at(record), self._moment()):
            self._wake.set()

    def _heard_at(self, record: ConsumerRecord) -> float:
        """When a report was made, on our monotonic clock.

        Those that stand on the topic when we start are as old as the broker says. Later ones count
        as heard now: a scheduler must not look silent, or alive, by what clocks say.
        """
        heard_at = time.monotonic()
        if self._is_caught_up:
            return heard_at
        return heard_at - max(WALL.now() - float(record.timestamp) / 1000, 0.0)

    async def _coordinate(self) -> None:
        while not self.stopping.is_set():
            self._decided_at = time.monotonic()
            self._wake.clear()
            if await self._leads():
                await self._decide()
                self._begin_to_set_aside()
            else:
                self._bad.follow()
            self._picture.sample(self._moment(), WALL.now())
            self._say_what_is_amiss()
            due = min(self._coordination.seconds_to_change(self._moment()), DECIDE_SECONDS)
            await asyncio.sleep(LEAST_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(due - LEAST_SECONDS, 0.0))

    async def _leads(self) -> bool:
        """Whether to decide now. A new leader first reads all that the last one has said."""
        await self._leadership.confirm()
        epoch = self._leadership.epoch
        if epoch != self._coordination.epoch:
            if epoch:
                await self._claim(epoch)
                await self._followers[MULTIPLIERS.name].catch_up()
            if epoch and epoch == self._leadership.epoch:
                self._coordination.lead(epoch, self.settings.instance)
            else:
                self._coordination.follow()
        metrics.LEADING.set(bool(self._coordination.epoch))
        metrics.EPOCH.set(max(self._coordination.epoch, self._newest_epoch()))
        return bool(self._coordination.epoch)

    async def _claim(self, epoch: int) -> None:
        message = self._coordination.claim(epoch, self.settings.instance)
        if message is not None:
            # Under a key of its own: the plan that stands is not to be compacted away.
            claim = await self._publisher.send(MULTIPLIERS, CLAIM_KEY, encode(message), partition=0)
            await claim

    async def _decide(self) -> None:
        message = self._coordination.next(self._moment())
        if message is None:
            return
        # A failure here ends the process: whether the broker has the message is then unknown,
        # and the next start reads it from the topic.
        in_time = (message.effective_at - self.clock.now()) / self.clock.speed
        message = replace(message, append_by=WALL.now() + in_time - KNOWN_AHEAD_SECONDS)
        sent = await self._publisher.send_global(MULTIPLIERS, message)
        if is_late(message, await self._appended_at(message, sent)):
            log.warning("multipliers came too late: deciding again", version=message.version)
            metrics.LATE.inc()
            self._coordination.came_late(message)
            self._wake.set()
            return
        self._coordination.published(message, self._moment())
        metrics.DECISIONS.labels(message.cause).inc()
        if message.cause == "refresh":
            return
        achieved = self._picture.achieved(self._moment())
        live = sum(a.share > 0 for a in message.allotments)
        value = self._coordination.slot_value
        self._history.add(Decided(message, achieved.rate, achieved.ratio, live, value))
        if message.cause not in {"demand", "ramp"}:
            log.info(
                "multipliers published",
                cause=message.cause,
                why=message.why,
                version=message.version,
                epoch=message.epoch,
                multiplier=message.multiplier,
                crawls_per_second=message.crawls_per_second,
                shards=live,
            )

    async def _appended_at(self, message: Multipliers, sent: RecordMetadata) -> float | None:
        """When the broker took our message; None: its topic has our own times."""
        at = appended_at(sent)
        if at is None and message.append_by is not None and WALL.now() > message.append_by:
            # Of a message that reached it twice a broker may not say when. The topic does.
            await self._followers[MULTIPLIERS.name].catch_up()
            return self._appended.get((message.epoch, message.version))
        return at

    def _begin_to_set_aside(self) -> None:
        """Beside the decisions: who begins to lead first looks for seconds which letters there are.

        Raises:
            KafkaError: the last ones could not be set aside, and waiting cannot help.
        """
        if self._setting_aside is not None:
            if not self._setting_aside.done():
                return
            if (error := self._setting_aside.exception()) is not None:
                if not may_pass(error):
                    raise error
                log.warning("bad messages are not set aside yet, trying again", error=repr(error))
        self._setting_aside = asyncio.ensure_future(self._set_bad_ones_aside())

    async def _set_bad_ones_aside(self) -> None:
        """Wait until the broker has them; those that it has not are held again.

        Raises:
            KafkaError: one of them could not be stored.
        """
        taken = await self._bad.take(self.settings, NAME)
        told = await asyncio.gather(*map(self._set_aside, taken), return_exceptions=True)
        failed = [error for error in told if error is not None]
        if failed:
            pairs = zip(taken, told, strict=True)
            self._bad.put_back([bad for bad, error in pairs if error is not None])
            raise failed[0]

    async def _set_aside(self, bad: Bad) -> None:
        await (await self._publisher.dead_letter(bad.record, NAME, bad.reason))

    def _say_what_is_amiss(self) -> None:
        notice = self._picture.notice(self._moment())
        if notice and time.monotonic() - self._noticed_at > _NOTICE_SECONDS:
            self._noticed_at = time.monotonic()
            log.warning(notice)


def main() -> None:
    """Run the coordinator until it is told to stop."""
    settings = load_settings()
    service = Coordinator(settings)
    app = make_app(NAME, service)
    add_picture(app, service.state)
    add_views(app, service.views.ask)
    run_app(NAME, app, settings)
