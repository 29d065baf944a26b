"""The part of `AIOKafkaProducer` that our code uses, on the model: one request on its way at a
time, a batch a partition in each."""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final

from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.partitioner import murmur2
from aiokafka.structs import RecordMetadata, TopicPartition

from services.verify.simulation.kafka.broker import Broker, Given, Header, Stored
from services.verify.simulation.kafka.metadata import Metadata
from services.verify.simulation.kafka.network import REQUEST_SECONDS, Network
from services.verify.simulation.loop import VirtualLoop

LINGER_SECONDS: Final = 0.002

DELIVERY_SECONDS: Final = 30.0
"""A batch that could not be delivered for so long is given up."""

MOST_IN_A_BATCH: Final = 1_000

RETRY_SECONDS: Final = 0.1


class Batch:
    """What `create_batch` makes."""

    def __init__(self) -> None:
        self.given: list[Given] = []

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None) -> Any:
        """Add a record; None: it is full."""
        if len(self.given) >= MOST_IN_A_BATCH:
            return None
        at = int(time.time() * 1000) if timestamp is None else timestamp
        self.given.append(Given(key, value, at))
        return self

    def record_count(self) -> int:
        """How many there are."""
        return len(self.given)


class _Queued:
    """A batch on its way."""

    def __init__(self, number: int, given: list[Given], since: float) -> None:
        self.number, self.given, self.since = number, given, since
        self.answers: list[asyncio.Future[RecordMetadata]] = []
        self.is_open = False


class _Accumulator:
    """What waits; its methods are those that `hold_back` uses."""

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer
        self.queues: dict[TopicPartition, deque[_Queued]] = {}

    def drain_by_nodes(
        self, ignore_nodes: Collection[int], muted_partitions: Any = frozenset()
    ) -> dict[TopicPartition, _Queued]:
        """The first batch of each partition, taken out."""
        drained: dict[TopicPartition, _Queued] = {}
        if 0 in ignore_nodes:
            return drained
        for tp, queue in self.queues.items():
            if queue and tp not in muted_partitions:
                drained[tp] = queue.popleft()
                drained[tp].is_open = False
        return drained

    def waiter(self) -> "asyncio.Future[None]":
        """Done when it is worth to look again."""
        return self._producer.waiter()


class _Client:
    """What our code sets and asks of a producer's connections."""

    def __init__(self, broker: Broker, network: Network) -> None:
        self._request_timeout_ms = int(1000 * REQUEST_SECONDS)
        self._network = network
        self.metadata = Metadata(broker)
        self.cluster = self

    def leader_for_partition(self, tp: TopicPartition) -> int | None:
        """The only broker, for partitions that are known."""
        return 0 if tp.partition < self.metadata.count(tp.topic) else None

    async def force_metadata_update(self) -> None:
        """Ask which partitions there are."""
        await self._network.query(self.metadata.ask)

    @property
    def request_seconds(self) -> float:
        """An answer is waited for so long."""
        return self._request_timeout_ms / 1000


class Producer:
    """A producer of the model."""

    def __init__(
        self, loop: VirtualLoop, broker: Broker, network: Network, *, enable_idempotence: bool
    ) -> None:
        self._loop, self._broker, self._network = loop, broker, network
        self._is_idempotent = enable_idempotence
        self.client = _Client(broker, network)
        self._message_accumulator: Any = _Accumulator(self)
        self._txn_manager = None  # The broker of the model refuses nothing that was counted.
        self._waiter: asyncio.Future[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._unfinished: dict[int, _Queued] = {}
        self._finished = asyncio.Event()

    async def start(self) -> None:
        """Connect."""
        await self._network.query(lambda: None)
        self._sender = asyncio.create_task(self._send_all())

    async def stop(self) -> None:
        """Send what waits, for a while, and disconnect."""
        if self._sender is None:
            return
        flushing = asyncio.ensure_future(self.flush())
        await asyncio.wait([flushing], timeout=REQUEST_SECONDS)
        flushing.cancel()
        self._sender.cancel()
        self._sender = None

    def waiter(self) -> "asyncio.Future[None]":
        """Done when there is something to send, or to look at again."""
        if self._waiter is None or self._waiter.done():
            self._waiter = self._loop.create_future()
        return self._waiter

    def _look(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def partitions_for(self, topic: str) -> set[int]:
        """Which partitions there are, as far as is known."""
        return set(range(self.client.metadata.count(topic)))

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue a record."""
        number = partition
        if number is None:
            number = murmur2(key or b"") % self.client.metadata.count(topic)
        at = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        given = Given(key, value, at, tuple(headers))
        queue = self._queue(TopicPartition(topic, number))
        if not queue or not queue[-1].is_open or len(queue[-1].given) >= MOST_IN_A_BATCH:
            self._put(queue, [])
            queue[-1].is_open = True
        batch = queue[-1]
        batch.given.append(given)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch.answers.append(future)
        return future

    async def send_and_wait(
        self, topic: str, value: bytes | None = None, *, partition: int
    ) -> RecordMetadata:
        """Send a record, and wait for the broker's answer."""
        return await (await self.send(topic, value, partition=partition))

    def create_batch(self) -> Batch:
        """A batch to be filled."""
        return Batch()

    async def send_batch(
        self, batch: Batch, topic: str, *, partition: int
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue a prepared batch."""
        queue = self._queue(TopicPartition(topic, partition))
        queued = self._put(queue, batch.given)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        queued.answers.append(future)
        return future

    def _queue(self, tp: TopicPartition) -> deque[_Queued]:
        found: deque[_Queued] = self._message_accumulator.queues.setdefault(tp, deque())
        return found

    def _put(self, queue: deque[_Queued], given: list[Given]) -> _Queued:
        queued = _Queued(self._broker.next_batch(), given, self._loop.now)
        queue.append(queued)
        self._unfinished[queued.number] = queued
        self._look()
        return queued

    async def flush(self) -> None:
        """Wait until all that was queued until now is done with."""
        for number in list(self._unfinished):
            while number in self._unfinished:
                self._finished.clear()
                await self._finished.wait()

    async def _send_all(self) -> None:
        while True:
            drained = self._message_accumulator.drain_by_nodes(
                ignore_nodes=frozenset(), muted_partitions=frozenset()
            )
            if not drained:
                await self._message_accumulator.waiter()
                await asyncio.sleep(LINGER_SECONDS)
                continue
            await self._send(drained)

    async def _send(self, drained: dict[TopicPartition, _Queued]) -> None:
        """One request; what is not answered is sent again, as the same batches."""

        def store() -> dict[TopicPartition, Stored]:
            return {
                tp: self._broker.append(
                    tp.topic,
                    tp.partition,
                    batch.given,
                    batch.number if self._is_idempotent else 0,
                )
                for tp, batch in drained.items()
            }

        try:
            stored = await self._network.ask(store, self.client.request_seconds)
        except KafkaError:
            self._put_back(drained)
            await asyncio.sleep(RETRY_SECONDS)
            return
        for tp, batch in drained.items():
            self._done(tp, batch, stored[tp])

    def _put_back(self, drained: dict[TopicPartition, _Queued]) -> None:
        for tp, batch in drained.items():
            if self._loop.now - batch.since > DELIVERY_SECONDS:
                error = KafkaTimeoutError("the batch could not be delivered in time")
                for future in batch.answers:
                    if not future.done():
                        future.set_exception(error)
                self._forget(batch)
            else:
                self._message_accumulator.queues[tp].appendleft(batch)

    def _done(self, tp: TopicPartition, batch: _Queued, stored: Stored) -> None:
        for place, future in enumerate(batch.answers):
            if not future.done():
                future.set_result(
                    RecordMetadata(
                        tp.topic,
                        tp.partition,
                        tp,
                        stored.offset + place,
                        None if stored.timestamp_ms < 0 else stored.timestamp_ms,
                        stored.timestamp_type,
                        0,
                    )
                )
        self._forget(batch)

    def _forget(self, batch: _Queued) -> None:
        self._unfinished.pop(batch.number, None)
        self._finished.set()
