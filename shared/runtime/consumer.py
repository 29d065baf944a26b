"""Reading the busy topics in batches, with positions that live beside the state."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from shared.contracts.topics import Topic
from shared.runtime import metrics
from shared.runtime.batches import Absent, Batch, BatchHandler, Reached, WrittenOut
from shared.runtime.continuity import Continuity, KnownTopics, StreamBroken
from shared.runtime.halting import standing_still
from shared.runtime.holding import Holding
from shared.runtime.isolation import TooManyBadMessages
from shared.runtime.kafka import fetch_bytes, gathering, make_consumer
from shared.runtime.lag import Lag, late_ones
from shared.runtime.leaders import PATIENCE_SECONDS, Leaders
from shared.runtime.leftovers import Leftovers, Loading, Missing
from shared.runtime.membership import Membership
from shared.runtime.partition_watch import PartitionWatch
from shared.runtime.polling import Polling
from shared.runtime.rebalances import BeforeLeaving, Rebalances
from shared.runtime.settings import Settings
from shared.runtime.slices import Pace, count_of, read_on, read_slice
from shared.runtime.telling import Telling


class BatchConsumer:
    """Reads co-partitioned topics for a group and hands batches to a handler.

    Partition i of every topic goes to the same member (`shared.runtime.striped`). When the group
    rebalances, partitions that stay are kept as they are; new ones, also those that are added to
    the topics, are loaded by the handler and read from the positions that it returns. Offsets are
    never committed to Kafka.

    A member with `loads_beside` goes on with the partitions that it keeps while it loads new ones.
    """

    def __init__(
        self,
        settings: Settings,
        group: str,
        topics: tuple[Topic, ...],
        handler: BatchHandler,
        *,
        pace: Pace | None = None,
        before_leaving: BeforeLeaving | None = None,
        loads_beside: bool = False,
        holding: Sequence[Holding[Any]] = (),
        reached: Reached | None = None,
        unread: Reached | None = None,
        known_topics: KnownTopics | None = None,
        written_out: WrittenOut | None = None,
        absent: Absent | None = None,
        written: Sequence[Topic] = (),
    ) -> None:
        """Make a consumer that is not started yet.

        Args:
            settings: of the process.
            group: consumer group, without the topic prefix.
            topics: co-partitioned.
            handler: gets the batches.
            pace: how long records are gathered for a batch, where there are few; None: not at all.
            before_leaving: awaited before partitions may go to another member.
            loads_beside: whether the handler can load partitions while others are read.
            holding: what holds back records until others are read.
            reached: told, between two batches, the positions that were reached without a record:
                all before them is handled, as the end of a transaction is nothing to handle.
            unread: told, whenever the group has decided, where topics end beyond what is handled:
                meanwhile nothing was read, and time went on.
            known_topics: which topics the positions are about; absent: those of the start.
            written_out: asked, before a partition is loaded anew, again and again until the
                brokers have all that was made of it. Partitions are loaded anew where records are
                gone before they were read: for handlers whose state others have written meanwhile.
            absent: asked, once partitions are loaded, which of them could not be.
            written: topics that a partition's handler writes to the same partition of; one whose
                partition has no leader is as absent as one that is read.
        """
        self._loads_beside = loads_beside
        self._loading: Loading | None = None
        self._max_records = settings.batch_max_messages
        self._most = self._max_records, settings.fetch_buffer_bytes
        self._names = {settings.topic(topic.name): topic.name for topic in topics}
        self._handler = handler
        self.partition_watch = PartitionWatch(settings, self._names)
        """Sees that the topics have got partitions: within a minute, or when it is told to look."""
        self._pace = pace or Pace(0.0)
        self._consumer = make_consumer(
            settings,
            group,
            partition_assignment_strategy=(self.partition_watch.assignor,),
            # Where to read is said below, always: nothing may be skipped silently.
            auto_offset_reset="none",
            **gathering(self._pace.linger_seconds, fetch_bytes(settings, len(topics))),
        )
        self._is_full = False
        self._holding = holding
        self._membership = Membership(settings.kafka_session_timeout_seconds)
        self._rebalances = Rebalances(self._consumer, self._membership, before_leaving)
        self._followed = 0
        self._ours: set[int] = set()
        self._next: dict[TopicPartition, int] = {}
        self._polling = Polling(self._consumer)
        self._continuity = Continuity(self._consumer, self._names, known_topics)
        self._written_out = written_out
        self._lag = Lag(self._consumer, self._names, lambda: self._next)
        metrics.begin(self._names.values(), metrics.MESSAGES_HANDLED, metrics.LATE_RECORDS)
        self._telling = Telling(self._consumer, self._names, self._lag, reached, unread)
        self._leftovers = Leftovers(self._consumer, holding)
        needed = [*self._names, *(settings.topic(topic.name) for topic in written)]
        self._leaders = Leaders(self._consumer, needed)
        self._to_reload: set[int] = set()
        self._missing = Missing(absent)
        self.halted: str | None = None
        """Why reading has stopped for good, until the worker is started again; None: it goes on."""
        self.progressed_at = time.monotonic()
        """Wall time of the last turn of the loop, for the watchdog."""

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions that are loaded and read now."""
        return frozenset(self._ours)

    @property
    def settled(self) -> bool:
        """Whether the group's last decision is known and followed.

        False while the group decides: partitions may be going to another member, so nothing must
        be emitted for them. False also where reading has stopped: what is known gets old.
        """
        if self.halted is not None:
            return False
        return not self._rebalances.deciding and self._followed == self._rebalances.generation

    @property
    def trouble(self) -> str | None:
        """Why partitions are not read, all of them or some; None: nothing is known of that."""
        return self.halted or self._leaders.trouble or self.partition_watch.trouble

    @property
    def is_loading(self) -> bool:
        """Whether partitions are being loaded while others are read."""
        return self._loading is not None

    @property
    def is_sure(self) -> bool:
        """Whether the partitions cannot be another member's: the broker has heard us lately; and if
        it had not for a while, what it has by now is known."""
        return self._membership.is_sure and not self._membership.was_unsure

    def reload(self, partitions: set[int]) -> None:
        """Have partitions loaded anew, between two batches: their state has been changed by others
        than their topics."""
        self._to_reload |= partitions

    async def start(self) -> None:
        """Connect and join the group."""
        await self._consumer.start()
        self._membership.watch(self._consumer)
        self.partition_watch.watch(self._consumer)
        self._consumer.subscribe(list(self._names), listener=self._rebalances)

    async def stop(self) -> None:
        """Disconnect. A static member keeps its partitions for the session timeout."""
        self._continuity.give_up()
        await self._consumer.stop()

    async def run(self, stopping: asyncio.Event) -> None:
        """Read and handle batches until `stopping` is set; the batch at hand is finished."""
        try:
            await self._polling.beside(
                *(lambda: self._run(stopping), self._lag.run),
                *(self._continuity.run, self.partition_watch.run),
            )
        finally:
            self._give_up_loading()

    def _give_up_loading(self) -> set[int]:
        """Stop loading; returns what was being loaded."""
        if self._loading is None:
            return set()
        self._loading.positions.cancel()
        return self._loading.partitions

    async def _run(self, stopping: asyncio.Event) -> None:
        try:
            await self._read_and_handle(stopping)
        except TooManyBadMessages as error:
            metrics.HALTED.labels(error.topic).set(1)
            await self._halt(str(error), stopping)
        except StreamBroken as error:
            metrics.STREAM_BROKEN.labels(error.topic).set(1)
            self.halted = str(error)
            # What is no longer kept up must not be reported, nor go out.
            await self._handler.revoked(self._ours | self._give_up_loading())
            await self._halt(str(error), stopping)

    async def _read_and_handle(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.progressed_at = time.monotonic()
            self._polling.check()
            self._continuity.raise_if_broken()
            if not self.settled:
                await self._follow_rebalance()
                continue
            await self._telling.catch_up(self._membership)
            if self._loading is not None and self._loading.positions.done():
                await self._take_loaded()
            if again := self._to_reload & self._ours:
                await self._load_anew(again)
            if self._loading is None and (due := self._missing.due()):
                await self._load_missing(due)
            if moved := await self._telling.passed_over(self._next if self.settled else {}):
                self._next |= moved
                await self._telling.reached(moved)
            self._leftovers.resume(self._ours)
            batch = await self._read()
            if not batch:
                continue
            if self.settled:
                started = time.perf_counter()
                left = await self._handler.handle(batch) or ()
                spent = time.perf_counter() - started
                metrics.BATCH_SECONDS.observe(spent)
                self._pace.done(time.monotonic(), spent, is_full=self._is_full)
                self._advance(batch, left)
                self._leftovers.put_back(left, self._next)
            # Else a rebalance came between reading and handling: `_next` still points before it.

    async def _halt(self, reason: str, stopping: asyncio.Event) -> None:
        """Stand still, as a member of the group: another one would only stop as well. Readiness and
        metrics say why."""
        self.halted = reason
        self._give_up_loading()
        async for _ in standing_still(reason, stopping):
            self.progressed_at = time.monotonic()
            self._polling.check()
            self._consumer.pause(*self._consumer.assignment())

    async def _read(self) -> Batch:
        try:
            return await self._gather()
        except OffsetOutOfRangeError as error:
            await self._go_on_behind_gap(error.args[0])
            return {}

    async def _gather(self) -> Batch:
        fetched = await read_slice(self._consumer, self._max_records, timeout_ms=100)
        self._lag.read_at = time.monotonic()
        if fetched and count_of(fetched) < self._max_records // 4:
            await asyncio.sleep(self._pace.left(time.monotonic()))
        self._is_full = await read_on(self._consumer, fetched, *self._most)
        for holding in self._holding:
            await holding.hold_back(self._consumer, fetched)
        batch: Batch = {}
        for tp, records in fetched.items():
            batch.setdefault(self._names[tp.topic], {})[tp.partition] = records
            metrics.MESSAGES_CONSUMED.labels(self._names[tp.topic]).inc(len(records))
        return batch

    async def _go_on_behind_gap(self, refused: Mapping[TopicPartition, int]) -> None:
        """Read on where the broker does not have what is to be read next.

        What was read with it, and is not handled yet, is read again.
        """
        gone = await self._continuity.behind(refused, self._next)
        if not self.settled:
            return
        self._next |= {tp: offset for tp, offset in gone.items() if tp in self._next}
        partitions = {tp.partition for tp in gone} & self._ours
        if self._written_out is not None and partitions:
            await self._load_anew(partitions)
        for holding in self._holding:
            holding.forget()
        if self.settled:
            self._read_on_with(self._ours)

    async def _load_anew(self, partitions: set[int]) -> None:
        await self._take_loaded()
        self._consumer.pause(*(t for t in self._next if t.partition in partitions))
        await self._let_go(partitions)
        while self.settled and self._written_out is not None and not await self._written_out():
            self.progressed_at = time.monotonic()
            await self._telling.catch_up(self._membership)  # or nothing may be written
        await self._load(partitions)

    def _advance(self, batch: Batch, left: Collection[int]) -> None:
        by_name = {name: full for full, name in self._names.items()}
        for topic, partitions in batch.items():
            for partition, records in partitions.items():
                if partition not in left:
                    metrics.MESSAGES_HANDLED.labels(topic).inc(len(records))
                    metrics.LATE_RECORDS.labels(topic).inc(late_ones(records, time.time()))
                    self._next[TopicPartition(by_name[topic], partition)] = records[-1].offset + 1

    async def _follow_rebalance(self) -> None:
        if self._rebalances.deciding:
            await asyncio.sleep(0.01)
            return
        generation = self._rebalances.generation
        for holding in self._holding:
            holding.forget()
        if self._loading is not None and self._loading.positions.done():
            await self._take_loaded()
        self.partition_watch.shared_anew()
        shared = self._rebalances.common_partitions()
        leaderless = await self._leaders.lacking(shared, PATIENCE_SECONDS)
        if self._rebalances.deciding or self._rebalances.generation != generation:
            return
        wanted = shared - leaderless
        # Where others may have had our partitions, what we have in memory stands still since then:
        # it is loaded again.
        had = self._ours | self._missing.partitions
        lost = had if self._rebalances.was_left_out else had - wanted
        new = wanted - (self._ours - lost)
        if self._loading is not None:
            if self._rebalances.was_left_out or self._loading.partitions != new:
                # Not waited for: that could take as long as the servers are away.
                await self._handler.revoked(await self._stop_loading())
            else:
                new = set()
        self._rebalances.was_left_out = False
        self._rebalances.follows(new, lost)
        if lost:
            await self._let_go(lost)
        self._missing.put_off(leaderless)
        if new:
            await self._load(new)
        metrics.ASSIGNED_SHARDS.set(len(self._ours))
        if self._rebalances.generation != generation or not await self._telling.unread():
            return
        self._read_on_with(self._ours)
        self._followed = generation
        self._membership.was_unsure = False
        self._rebalances.followed(len(self._ours))

    async def _stop_loading(self) -> set[int]:
        partitions = self._give_up_loading()
        if self._loading is not None:
            await asyncio.wait([self._loading.positions])
            self._loading = None
        return partitions

    async def _let_go(self, partitions: set[int]) -> None:
        await self._handler.revoked(partitions)
        self._to_reload -= partitions
        for holding in self._holding:
            holding.forget(partitions)
        self._next = {tp: o for tp, o in self._next.items() if tp.partition not in partitions}
        self._ours -= partitions
        self._missing.forget(partitions)

    async def _load(self, partitions: set[int]) -> None:
        loading = asyncio.ensure_future(self._handler.assigned(partitions))
        self._loading = Loading(partitions, loading)
        if not (self._loads_beside and self._ours):
            await self._take_loaded()

    async def _load_missing(self, partitions: set[int]) -> None:
        leaderless = await self._leaders.lacking(partitions)
        if self.settled:
            self._missing.put_off(leaderless)
            if there := partitions - leaderless:
                await self._load(there)

    async def _take_loaded(self) -> None:
        """Wait for what is being loaded, if anything is, and make it ours."""
        if self._loading is None:
            return
        known = await self._loading.positions
        new = self._missing.left_of(self._loading.partitions)
        await self._continuity.check()
        starts = await self._continuity.starts(
            {
                TopicPartition(name, number): known.get((topic, number))
                for name, topic in self._names.items()
                for number in new
            }
        )
        if self._written_out is not None:
            # What went while it was loaded is not waited for: nothing may come behind it.
            await self._telling.reached(starts)
        self._loading = None
        self._ours |= new
        self._next |= starts
        metrics.ASSIGNED_SHARDS.set(len(self._ours))
        if self.settled:
            self._read_on_with(new)

    def _read_on_with(self, partitions: set[int]) -> None:
        """Read partitions from where they are to go on."""
        assigned = self._consumer.assignment()  # a rebalance may have begun just now
        there = [tp for tp in assigned if tp.partition in partitions]
        for tp in there:
            self._consumer.seek(tp, self._next[tp])
        self._consumer.resume(*there)
