"""The part of `AIOKafkaConsumer` that our code uses, on the model."""

import asyncio
import contextvars
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import OffsetAndTimestamp

from services.verify.simulation.kafka.broker import Broker, Partition
from services.verify.simulation.kafka.coordinator import Coordinator
from services.verify.simulation.kafka.metadata import Metadata
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import SimulationPlan
from services.verify.simulation.process import current

IDLE_SECONDS: Final = 1.0
"""A poll that finds nothing takes so long, though shorter waits are asked for: who reads looks up
when there is something, and turns in which nothing happens cost the most of a simulation."""

Records = dict[TopicPartition, list[ConsumerRecord]]


class _Place:
    """A partition that is read."""

    def __init__(self, log: Partition) -> None:
        self.log = log
        self.position: int | None = None
        self.is_paused = False
        self.seen_until = 0
        """What the broker has told of it goes up to here."""
        self.highwater: int | None = None
        self.stable: int | None = None


class Consumer:
    """A consumer of the model."""

    def __init__(
        self,
        loop: VirtualLoop,
        broker: Broker,
        network: Network,
        rng: Random,
        options: Mapping[str, Any],
        plan: SimulationPlan,
    ) -> None:
        self.loop, self.broker, self.network = loop, broker, network
        self.listener: Any = None
        self._random = rng.random
        self._options = options
        self._poll_seconds = plan.scale.poll_seconds
        self._weather = plan.weather
        self._reads_committed = options.get("isolation_level") == "read_committed"
        self._places: dict[TopicPartition, _Place] = {}
        self._ordered: list[TopicPartition] = []
        self._ordered_of = self._places
        """What they were ordered of: `assign` begins a new one."""
        self._coordinator: Coordinator | None = None
        self._is_reassigning = False
        self._is_closed = False
        self._error: KafkaError | None = None
        self._polls = 0
        self._polled_at = loop.now
        self._wake: asyncio.Event = asyncio.Event()
        self._context = contextvars.copy_context()
        self._process = current()
        self._fetching = False
        self._client = self
        self._metadata = Metadata(broker)

    async def start(self) -> None:
        """Connect."""
        await self.network.query(lambda: None)
        if "group_id" in self._options:
            session = self._options["session_timeout_ms"] / 1000
            self._coordinator = Coordinator(
                self,
                str(self._options["group_id"]),
                str(self._options["group_instance_id"]),
                session,
                max(self._options["heartbeat_interval_ms"] / 1000, session / 5),
                self._poll_seconds,
                self._options.get("partition_assignment_strategy", ()),
            )
            self.broker.growing.append(self._learn_later)

    async def stop(self) -> None:
        """Disconnect; nothing of it waits for the broker."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forget_places()
        if self._coordinator is not None:
            await self._coordinator.close()

    def _forget_places(self) -> None:
        for place in self._places.values():
            if self._tell in place.log.followers:
                place.log.followers.remove(self._tell)
        self._places = {}

    # What is read.

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        """Join the group for some topics."""
        if self._coordinator is None:
            raise IllegalStateError("there is no group")
        self.listener = listener
        self._is_reassigning = True
        self._coordinator.start(sorted(topics))

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Read some partitions, from their beginning unless told else."""
        wanted = list(tps)
        before = self._places
        self._forget_places()
        for tp in wanted:
            place = _Place(self.broker.partition(tp.topic, tp.partition))
            if tp in before:
                place.position = before[tp].position
            self._places[tp] = place
            place.log.followers.append(self._tell)
        self._tell()

    def begin_reassignment(self) -> None:
        """The group decides: nothing is handed out."""
        self._is_reassigning = True

    def assign_from_group(self, tps: list[TopicPartition]) -> None:
        """The group has decided: what was read before is read from the same place on, unless it is
        sought elsewhere."""
        self._places = {tp: place for tp, place in self._places.items() if tp in tps}
        self.assign(tps)
        self._is_reassigning = False
        self._wake.set()

    def fail(self, error: KafkaError) -> None:
        """Whoever polls next sees this."""
        self._error = error
        self._wake.set()

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read."""
        return frozenset(self._places)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Which partitions there are, as far as is known."""
        return set(range(self._metadata.count(topic)))

    def _learn_later(self) -> None:
        self.loop.call_later(self._metadata.lag + 0.001, self._learn, context=self._context)

    def force_metadata_update(self) -> None:
        """Ask soon which partitions there are."""
        self.loop.call_later(self.network.latency(), self._learn, True, context=self._context)

    def _learn(self, is_asked: bool = False) -> None:
        if is_asked and self.network.reaches(self._process):
            self._metadata.ask()
        if self._coordinator is not None and not self._is_closed:
            self._coordinator.look_at_partitions()

    def _place(self, tp: TopicPartition) -> _Place:
        if tp not in self._places:
            raise IllegalStateError(f"No current assignment for partition {tp}")
        return self._places[tp]

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from an offset."""
        self._place(tp).position = offset
        self._tell()

    async def seek_to_beginning(self, *tps: TopicPartition) -> None:
        """Read from the beginning."""
        for tp in tps or tuple(self._places):
            self._place(tp).position = self._place(tp).log.begin

    def pause(self, *tps: TopicPartition) -> None:
        """Hand out nothing of some partitions."""
        for tp in tps:
            self._place(tp).is_paused = True

    def resume(self, *tps: TopicPartition) -> None:
        """Hand it out again."""
        for tp in tps:
            self._place(tp).is_paused = False
        self._tell()

    async def position(self, tp: TopicPartition) -> int:
        """Where reading goes on."""
        return self._position(self._place(tp))

    @staticmethod
    def _position(place: _Place) -> int:
        place.position = place.log.begin if place.position is None else place.position
        return place.position

    def highwater(self, tp: TopicPartition) -> int | None:
        """Where the partition ended when the broker last told of it."""
        return self._place(tp).highwater

    def last_stable_offset(self, tp: TopicPartition) -> int | None:
        """Where the oldest transaction begins that is not ended; without one, the end."""
        return self._place(tp).stable

    # Fetching.

    @property
    def idle_seconds(self) -> float:
        """For how long nobody has polled."""
        return 0.0 if self._polls else self.loop.now - self._polled_at

    def _tell(self) -> None:
        """There may be something new: ask for it, unless that is under way."""
        if self._fetching or self._is_closed:
            return
        self._fetching = True
        self.loop.call_later(self.network.latency(), self._fetch, context=self._context)

    def _fetch(self) -> None:
        self._fetching = False
        if self._is_closed:
            return
        if not self.network.reaches(self._process):
            self.network.when_reached(self._tell)
            return
        is_new, uneven = False, self._weather.uneven
        for place in self._places.values():
            log = place.log
            if not log.is_led(self.loop.now):
                wait = log.unreadable_until - self.loop.now
                self.loop.call_later(wait, self._tell, context=self._context)
                continue
            stable = log.stable
            if uneven and stable != place.seen_until and self._random() < uneven:
                # Another broker has it, which answers later.
                self._tell()
                continue
            until = stable if self._reads_committed else log.end
            is_new = is_new or until != place.seen_until
            place.seen_until, place.highwater, place.stable = until, log.end, stable
        if is_new:
            self._wake.set()

    async def getmany(
        self, *tps: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Records:
        """What there is; waits a little where there is nothing.

        Raises:
            KafkaError: the group does not have us.
        """
        self._polls += 1
        try:
            return await self._getmany(tps, timeout_ms, max_records)
        finally:
            self._polls -= 1
            self._polled_at = self.loop.now

    async def _getmany(
        self, tps: tuple[TopicPartition, ...], timeout_ms: int, max_records: int | None
    ) -> Records:
        until = self.loop.now + (max(timeout_ms / 1000, IDLE_SECONDS) if timeout_ms else 0.0)
        while True:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if not self._is_reassigning:
                found = self._take(tps, max_records)
                if found or self.loop.now >= until or self._is_closed:
                    if not found:
                        self._tell()
                    return found
            elif self._is_closed:
                return {}
            self._wake.clear()
            left = None if self._is_reassigning else until - self.loop.now
            await self._woken(left)

    async def _woken(self, seconds: float | None) -> None:
        timer = None
        if seconds is not None:
            timer = self.loop.call_later(max(seconds, 0.0), self._wake.set)
        await self._wake.wait()
        if timer is not None:
            timer.cancel()

    def _take(self, tps: tuple[TopicPartition, ...], max_records: int | None) -> Records:
        left = max_records or 500
        found: Records = {}
        partly = self._random() < self._weather.partly
        for tp in sorted(tps) if tps else self._in_order():
            place = self._places.get(tp)
            if place is None or place.is_paused or left <= 0:
                continue
            begin = self._position(place)
            log = place.log
            if not log.begin <= begin <= log.end:
                if self._options["auto_offset_reset"] == "none":
                    raise OffsetOutOfRangeError({tp: begin})
                begin = place.position = log.begin
            if begin >= place.seen_until:
                continue
            most = left
            if partly:
                most = min(left, int(self._random() * 4))
                if not most:
                    continue
            records = log.between(begin, place.seen_until, most)
            if records:
                found[tp] = records
                left -= len(records)
                place.position = records[-1].offset + 1
            if len(records) < most:
                place.position = max(begin, min(place.seen_until, log.end))
        return found

    def _in_order(self) -> list[TopicPartition]:
        if len(self._ordered) != len(self._places) or self._ordered_of is not self._places:
            self._ordered, self._ordered_of = sorted(self._places), self._places
        return self._ordered

    # Questions.

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end."""
        asked = list(tps)
        return await self.network.query(lambda: {tp: self._led(tp).stable for tp in asked})

    async def beginning_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where they begin."""
        asked = list(tps)
        return await self.network.query(lambda: {tp: self._led(tp).begin for tp in asked})

    def _led(self, tp: TopicPartition) -> Partition:
        """A partition; as the real client, whoever asks waits until somebody leads it."""
        log = self.broker.partition(tp.topic, tp.partition)
        if not log.is_led(self.loop.now):
            raise LeaderNotAvailableError(tp)
        return log

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of a time or later, of each partition."""
        asked = dict(times)

        def find() -> dict[TopicPartition, OffsetAndTimestamp | None]:
            return {tp: self._first_since(tp, since) for tp, since in asked.items()}

        return await self.network.query(find)

    def _first_since(self, tp: TopicPartition, since_ms: int) -> OffsetAndTimestamp | None:
        for record in self.broker.partition(tp.topic, tp.partition).records:
            if record.timestamp >= since_ms:
                return OffsetAndTimestamp(record.offset, record.timestamp)
        return None

    async def committed(self, tp: TopicPartition) -> int | None:
        """What the group has committed."""
        group = self._group()
        return await self.network.query(lambda: group.committed.get((tp.topic, tp.partition)))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for the group.

        Raises:
            CommitFailedError: we are no longer a member of this generation.
        """
        coordinator, group = self._coordinator, self._group()
        if coordinator is None or any(tp not in self._places for tp in offsets):
            raise IllegalStateError("a partition is not ours")
        generation, member_id = coordinator.generation, coordinator.member_id
        given = {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}

        def keep() -> bool:
            known = any(m.member_id == member_id for m in group.members.values())
            if known and generation == group.generation:
                group.commit(given, self.loop.now)
                return True
            return False

        if not await self.network.query(keep):
            raise CommitFailedError("the group has shared its partitions anew")

    def _group(self) -> Any:
        name = str(self._options["group_id"])
        return next(group for group in self.broker.groups.all() if group.name == name)
