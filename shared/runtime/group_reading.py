"""Reading busy topics whose positions are kept in Kafka, by the group itself.

For workers with no state but what they may forget: ingester and discoverer. The group commits
after the broker has acknowledged all that came of a batch: a crash reads a batch again, and what
is published twice is applied once by those who read it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import structlog
from aiokafka import ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
)

from shared.contracts.topics import Topic
from shared.runtime import metrics
from shared.runtime.committed_offsets import believe_no_errors
from shared.runtime.continuity import ANSWER_SECONDS, Continuity, StreamBroken
from shared.runtime.halting import standing_still
from shared.runtime.isolation import TooManyBadMessages
from shared.runtime.kafka import fetch_bytes, gathering, make_consumer, may_pass
from shared.runtime.lag import Lag
from shared.runtime.leaders import PATIENCE_SECONDS, Leaders
from shared.runtime.polling import Polling
from shared.runtime.settings import Settings
from shared.runtime.slices import Fetched, Pace, passed_over, read_on, read_slice

log = structlog.get_logger(__name__)

QUESTIONS: Final = 3
"""A broker is asked so often whether nothing was ever committed, before it is believed."""

QUESTION_SECONDS: Final = 0.25

SOON_SECONDS: Final = 0.5
"""After so long a broker that gave no answer is asked again, while nothing is read."""

AGAIN_SECONDS: Final = 5.0
"""After so long it is asked about partitions that wait, while others are read: each time costs
those a moment."""

Handle = Callable[[Sequence[ConsumerRecord]], Awaitable[None]]


class GroupReader(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Hands batches of records to a callback and commits each when it is done."""

    def __init__(
        self,
        settings: Settings,
        group: str,
        topics: Sequence[Topic],
        handle: Handle,
        gathered_seconds: float,
    ) -> None:
        """Make a reader that is not started yet.

        Args:
            settings: of the process.
            group: consumer group, without the topic prefix.
            topics: of which it reads all partitions, with its other members.
            handle: gets the batches; when it returns, all that came of one is durable. May raise
                `TooManyBadMessages`: reading stops before the batch, for people to look at.
            gathered_seconds: how long records are gathered for a batch, where there are few.
        """
        self._names = {settings.topic(topic.name): topic.name for topic in topics}
        self._max_records = settings.batch_max_messages
        self._max_bytes = settings.fetch_buffer_bytes
        self._handle = handle
        believe_no_errors()
        self._consumer = make_consumer(
            settings,
            group,
            auto_offset_reset="none",
            **gathering(gathered_seconds, fetch_bytes(settings, len(topics))),
        )
        self._pace = Pace(gathered_seconds)
        self._busy = asyncio.Lock()
        self._deciding = True
        self._decisions = 0
        """Of the group: each makes old what is being asked about the one before."""
        self._is_begun = False
        """Whether those partitions of the last decision are read that can be."""
        self._waiting: set[TopicPartition] = set()
        """Ours, but it is not known yet from where to read them."""
        self._ask_at = 0.0
        """When (monotonic) to find that out."""
        self._next: dict[TopicPartition, int] = {}
        self._polling = Polling(self._consumer)
        self._continuity = Continuity(self._consumer, self._names)
        self._leaders = Leaders(self._consumer, self._names)
        self._lag = Lag(self._consumer, self._names, lambda: self._next)
        self._reached: dict[TopicPartition, int] = {}
        """What we have ever committed, of partitions that others may have now too."""
        self.halted: str | None = None
        """Why reading has stopped for good, until the worker is started again; None: it goes on."""
        self.progressed_at = time.monotonic()
        """Wall time of the last turn of the loop, for the watchdog."""

    @property
    def settled(self) -> bool:
        """Whether the group has decided which partitions are ours, and all of them are read."""
        return self._is_begun and not self._waiting

    @property
    def trouble(self) -> str | None:
        """Why partitions are not read, all of them or some; None: nothing is known of that."""
        return self.halted or self._leaders.trouble

    async def start(self) -> None:
        """Connect and join the group."""
        await self._consumer.start()
        self._consumer.subscribe(list(self._names), listener=self)

    async def stop(self) -> None:
        """Disconnect."""
        self._continuity.give_up()
        await self._consumer.stop()

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Let the batch at hand be committed before its partitions go to somebody else."""
        self._deciding, self._is_begun = True, False
        self._decisions += 1
        async with self._busy:
            self._next = {tp: o for tp, o in self._next.items() if tp not in revoked}

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Note what is ours; the reading loop finds out where to go on.

        The client sends no heartbeat before this has returned: nothing is waited for here. And it
        keeps to itself what is raised here.
        """
        # Nothing is fetched before it is known from where; until then any position will do.
        self._consumer.pause(*assigned)
        for tp in assigned:
            self._consumer.seek(tp, 0)
        self._waiting, self._ask_at = set(assigned), 0.0
        self._deciding, self._is_begun = False, False
        self._decisions += 1

    async def _begin(self) -> None:
        """Read those that we wait for, as far as a broker leads them: from what the group has
        committed, or from where we were ourselves.

        Raises:
            KafkaError: the broker refuses.
        """
        decisions = self._decisions
        patience = 0.0 if self._is_begun else PATIENCE_SECONDS
        lacking = await self._leaders.lacking_of(self._waiting, patience)
        try:
            committed = await self._committed(self._waiting - lacking)
            starts = await self._continuity.starts_now(
                {
                    tp: self._reached.get(tp) if offset is None else offset
                    for tp, offset in committed.items()
                }
            )
        except (KafkaError, TimeoutError) as error:
            if not may_pass(error):
                raise
            log.warning("it is not known yet from where to read", reason=repr(error))
            self._ask_at = time.monotonic() + (AGAIN_SECONDS if self._is_begun else SOON_SECONDS)
            return
        if decisions == self._decisions:
            self._read_from(starts)

    def _read_from(self, starts: dict[TopicPartition, int]) -> None:
        for tp, start in starts.items():
            self._consumer.seek(tp, start)
        self._consumer.resume(*starts)
        if starts or not self._is_begun:
            log.info("partitions assigned", partitions=sorted({tp.partition for tp in starts}))
        self._waiting -= starts.keys()
        # Of a decision before, nothing counts.
        self._next = (self._next if self._is_begun else {}) | starts
        self._is_begun = True
        self._ask_at = time.monotonic() + AGAIN_SECONDS

    async def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """What is committed of partitions; None: nothing, as the broker has said several times.

        A reader that takes that for granted begins with the oldest record there is. So a broker
        that is just stopping, or beginning, is asked again; and who cannot be asked has said
        nothing.

        Raises:
            KafkaError, TimeoutError: it cannot be asked.
        """
        found: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
        for turn in range(QUESTIONS):
            unknown = [tp for tp, offset in found.items() if offset is None]
            if turn and unknown:
                await asyncio.sleep(QUESTION_SECONDS)
            for tp in unknown:
                question = self._consumer.committed(tp)
                found[tp] = await asyncio.wait_for(question, ANSWER_SECONDS)
        return found

    async def run(self, stopping: asyncio.Event) -> None:
        """Read, handle and commit until `stopping` is set; the batch at hand is finished."""
        await self._polling.beside(lambda: self._run(stopping), self._lag.run, self._continuity.run)

    async def _run(self, stopping: asyncio.Event) -> None:
        try:
            await self._read_and_handle(stopping)
        except TooManyBadMessages as error:
            metrics.HALTED.labels(error.topic).set(1)
            await self._halt(str(error), stopping)
        except StreamBroken as error:
            metrics.STREAM_BROKEN.labels(error.topic).set(1)
            await self._halt(str(error), stopping)

    async def _halt(self, reason: str, stopping: asyncio.Event) -> None:
        """Stand still, as a member of the group: another one would only stop as well."""
        self.halted = reason
        async for _ in standing_still(reason, stopping):
            self.progressed_at = time.monotonic()
            self._polling.check()

    async def _read_and_handle(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.progressed_at = time.monotonic()
            self._polling.check()
            self._continuity.raise_if_broken()
            if not self._deciding and self._is_time_to_ask():
                await self._begin()
            if not self._is_begun:
                await asyncio.sleep(0.01)
                continue
            # Outside the lock: while the group decides, this waits for the decision, and the
            # group waits for the lock.
            fetched = await self._read()
            self._lag.read_at = time.monotonic()
            async with self._busy:
                await self._take(fetched)
            if not fetched and self._is_begun:
                # The end of a transaction is no record: nothing is left behind there.
                self._next |= await passed_over(self._consumer, self._next)
            await asyncio.sleep(self._pace.left(time.monotonic()))

    def _is_time_to_ask(self) -> bool:
        return (not self._is_begun or bool(self._waiting)) and time.monotonic() >= self._ask_at

    async def _read(self) -> Fetched:
        try:
            fetched = await read_slice(self._consumer, self._max_records, timeout_ms=100)
            await read_on(self._consumer, fetched, self._max_records, self._max_bytes)
        except OffsetOutOfRangeError as error:
            self._next |= await self._continuity.behind(error.args[0], self._next)
            # What was read with it is read again. A rebalance may have begun just now.
            for tp in self._next.keys() & self._consumer.assignment():
                self._consumer.seek(tp, self._next[tp])
            return {}
        return fetched

    async def _take(self, fetched: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        records = [record for part in fetched.values() for record in part]
        if not records:
            return
        started = time.perf_counter()
        for tp, part in fetched.items():
            metrics.MESSAGES_CONSUMED.labels(self._names[tp.topic]).inc(len(part))
        await self._handle(records)
        await self._commit({tp: part[-1].offset + 1 for tp, part in fetched.items()})
        spent = time.perf_counter() - started
        metrics.BATCH_SECONDS.observe(spent)
        if len(records) < self._max_records // 4:
            self._pace.done(time.monotonic(), spent)

    async def _commit(self, done: dict[TopicPartition, int]) -> None:
        try:
            await self._consumer.commit(done)
        except (CommitFailedError, IllegalStateError) as error:
            # The group took a partition away meanwhile: its new reader does this batch again.
            log.warning("batch not committed", reason=str(error))
            return
        self._next |= done
        self._reached |= done
