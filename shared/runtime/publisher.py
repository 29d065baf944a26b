"""Writing to the contract's topics."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata
from msgspec import Struct

from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.topics import DEAD_LETTERS, GLOBAL_KEY, Topic
from shared.runtime import metrics
from shared.runtime.aiokafka_patches import give_up_requests_after, hold_back
from shared.runtime.dead_letters import Header, letter_of
from shared.runtime.kafka import make_producer, start_or_stop
from shared.runtime.known_partitions import wait_for_new_partitions
from shared.runtime.partition_counts import growth_of
from shared.runtime.refused_batches import give_up_sending
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL

Acknowledgement = asyncio.Future[RecordMetadata]

LETTERS_A_TURN = 100
"""Dead letters after which others get their turn: a batch may have thousands of them."""

Place = tuple[str, int]
"""(Topic without prefix, partition)."""

Messages = Sequence[tuple[bytes, bytes]]
"""Keys and values."""

ByPlace = dict[Place, list[tuple[bytes, bytes]]]
"""Messages that are being gathered."""

HeadersByNumber = Mapping[int, Sequence[Header]]
"""Headers of single messages, by their places among those that go to one partition."""

HeadersByPlace = dict[Place, dict[int, list[Header]]]
"""The same, of messages that are being gathered."""

_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})

_ROUNDS = 3
_ROUND_SECONDS = 0.001


def filled_batches(
    producer: AIOKafkaProducer,
    messages: Messages,
    headers: Sequence[Header] = (),
    own: HeadersByNumber = _NONE,
) -> list[BatchBuilder]:
    """Messages for one partition as batches of a producer, in order; one at least.

    Args:
        producer: that sends them.
        messages: keys and values.
        headers: of each of them.
        own: of single ones, besides.
    """
    batches, now_ms = [producer.create_batch()], int(time.time() * 1000)
    begin = 0
    for number in sorted(own):
        _fill(producer, batches, messages[begin:number], now_ms, headers)
        _fill(producer, batches, messages[number : number + 1], now_ms, [*headers, *own[number]])
        begin = number + 1
    _fill(producer, batches, messages[begin:], now_ms, headers)
    return batches


def _fill(
    producer: AIOKafkaProducer,
    batches: list[BatchBuilder],
    messages: Messages,
    now_ms: int,
    headers: Sequence[Header],
) -> None:
    more = {"headers": list(headers)} if headers else {}
    append = batches[-1].append
    for key, value in messages:
        # To ask for the time costs more than all else of a record: one does for all.
        if append(timestamp=now_ms, key=key, value=value, **more) is None:
            batches.append(producer.create_batch())
            append = batches[-1].append
            append(timestamp=now_ms, key=key, value=value, **more)


class Publisher:
    """One producer of a process. Messages go out in batches; `flush` waits for them."""

    def __init__(
        self,
        settings: Settings,
        may_send: Callable[[], bool] | None = None,
        request_seconds: float | None = None,
    ) -> None:
        """Make a publisher that is not started yet.

        Args:
            settings: of the process.
            may_send: while it says no, messages wait here; None: they never have to.
            request_seconds: a broker that is silent for so long is asked again on a new
                connection; None: the client's own default.
        """
        self.settings = settings
        self._may_send = may_send
        self._request_seconds = request_seconds
        self._producer: AIOKafkaProducer | None = None
        self._failure: BaseException | None = None
        self._letters = 0
        self._unanswered = 0
        self._moved_at = 0.0

    @property
    def stuck_seconds(self) -> float:
        """For how long brokers have acknowledged nothing, though something waits for it."""
        return time.monotonic() - self._moved_at if self._unanswered else 0.0

    async def start(self) -> None:
        """Connect; where that fails nothing is left behind.

        Raises:
            KafkaError: the brokers do not answer.
        """
        producer = make_producer(self.settings)
        if self._request_seconds is not None:
            give_up_requests_after(producer, self._request_seconds)
        await start_or_stop(producer)
        wait_for_new_partitions(producer)
        if self._may_send is not None:
            hold_back(producer, self._may_send)
        self._producer = producer

    async def stop(self, patience_seconds: float | None = None) -> None:
        """Send what is waiting, and disconnect.

        Args:
            patience_seconds: what the broker has not acknowledged after so long is given up; None:
                it is waited for.
        """
        if self._producer is not None:
            stopping = asyncio.ensure_future(self._producer.stop())
            await asyncio.wait([stopping], timeout=patience_seconds)
            if not stopping.done():
                await give_up_sending(self._producer)
            await stopping
            self._producer = None

    @property
    def producer(self) -> AIOKafkaProducer:
        """The producer, for what goes out in prepared batches.

        Raises:
            RuntimeError: before `start` or after `stop`.
        """
        if self._producer is None:
            raise RuntimeError("the publisher is not started")
        return self._producer

    async def partitions_of(self, topic: Topic) -> int:
        """How many partitions a topic has, as far as is known.

        They may be more than the settings say, as shards are added while workers run. That is
        learned within a minute; what goes to the partition of before meanwhile is passed on there.

        Raises:
            KafkaError: nobody answers, or there is no such topic.
            TopicMismatch: somebody has added partitions to it, and hosts would go to shards that
                know nothing of them.
        """
        name = self.settings.topic(topic.name)
        count = len(await self.producer.partitions_for(name))
        if topic.partitioning == "shards":
            growth_of({name: count}, self.settings.partitions)
        return count

    async def send(
        self,
        topic: Topic,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Iterable[Header] = (),
        at: float | None = None,
    ) -> Acknowledgement:
        """Queue one record; waits only where the queue is full.

        Args:
            topic: which.
            key: of the record.
            value: of the record; None: a tombstone.
            partition: which; None: the key's.
            headers: of the record.
            at: its time, Unix seconds; None: by the machine's clock.

        Returns:
            A future with the broker's acknowledgement.
        """
        future: Acknowledgement = await self.producer.send(
            self.settings.topic(topic.name),
            value,
            key=key,
            partition=partition,
            timestamp_ms=None if at is None else int(at * 1000),
            headers=list(headers),
        )
        self._follow(future).add_done_callback(self._note_failure)
        metrics.MESSAGES_PUBLISHED.labels(topic.name).inc()
        return future

    async def send_for_host(
        self, topic: Topic, host: str, message: Struct, at: float | None = None
    ) -> Acknowledgement:
        """Queue a message on the partition of its host's shard; `at` as in `send`."""
        shard = shard_of(host, await self.partitions_of(topic))
        return await self.send(topic, host.encode(), encode(message), partition=shard, at=at)

    async def send_global(self, topic: Topic, message: Struct) -> RecordMetadata:
        """Publish a message about everything (bandwidth, multipliers) and wait for the broker."""
        return await (await self.send(topic, GLOBAL_KEY, encode(message), partition=0))

    async def send_batches(
        self,
        messages: Mapping[Place, Messages],
        headers: Sequence[Header] = (),
        own: Mapping[Place, HeadersByNumber] = _NONE,
    ) -> dict[Place, int]:
        """Publish many messages, each partition's in order, and wait until the broker has them.

        In batches that are made in a thread: a tenth of the cost of one `send` a message, and the
        loop is free meanwhile.

        Args:
            messages: by place.
            headers: of each of them.
            own: of single ones, besides.

        Returns:
            for each place that has messages, the offset after the last one.

        Raises:
            KafkaError: something could not be delivered.
        """
        given = {place: part for place, part in messages.items() if part}
        batches = await asyncio.to_thread(self._made, given, headers, own)
        ends = await asyncio.gather(*(self._send_made(*item) for item in batches.items()))
        for (topic, _), part in given.items():
            metrics.MESSAGES_PUBLISHED.labels(topic).inc(len(part))
        return dict(zip(batches, ends, strict=True))

    async def queue_batches(self, messages: Mapping[Place, Messages]) -> None:
        """Queue many messages, each partition's in order; waits only where the queue is full.

        `flush` tells whether the broker has got them.
        """
        given = {place: part for place, part in messages.items() if part}
        for (topic, partition), batches in (await asyncio.to_thread(self._made, given)).items():
            name = self.settings.topic(topic)
            for batch in batches:
                stored = await self.producer.send_batch(batch, name, partition=partition)
                self._follow(stored).add_done_callback(self._note_failure)
            metrics.MESSAGES_PUBLISHED.labels(topic).inc(len(given[topic, partition]))

    def _made(
        self,
        messages: Mapping[Place, Messages],
        headers: Sequence[Header] = (),
        own: Mapping[Place, HeadersByNumber] = _NONE,
    ) -> dict[Place, list[BatchBuilder]]:
        return {
            place: filled_batches(self.producer, part, headers, own.get(place, _NONE))
            for place, part in messages.items()
        }

    async def _send_made(self, place: Place, batches: Sequence[BatchBuilder]) -> int:
        name, partition = self.settings.topic(place[0]), place[1]
        acknowledgements: list[asyncio.Future[RecordMetadata]] = [
            # Waits while the one before is not taken by the sender: what is queued stays little.
            self._follow(await self.producer.send_batch(batch, name, partition=partition))
            for batch in batches
        ]
        stored = await asyncio.gather(*acknowledgements)
        return int(stored[-1].offset) + int(batches[-1].record_count())

    async def dead_letter(self, record: ConsumerRecord, stage: str, reason: str) -> Acknowledgement:
        """Put a record that cannot be taken aside, as it came, with why (see `send`)."""
        key, value, headers = letter_of(record, stage, reason, WALL.now())
        metrics.DEAD_LETTERS.labels(stage, record.topic).inc()
        self._letters += 1
        if self._letters % LETTERS_A_TURN == 0:
            await asyncio.sleep(0)
        return await self.send(DEAD_LETTERS, key, value, partition=0, headers=headers)

    async def pass_on(self, record: ConsumerRecord, partition: int) -> Acknowledgement:
        """Queue a record as it came on another partition of its topic, with its own time (see
        `send`)."""
        future: Acknowledgement = await self.producer.send(
            record.topic,
            record.value,
            key=record.key,
            partition=partition,
            timestamp_ms=record.timestamp if record.timestamp > 0 else None,
            headers=list(record.headers),
        )
        self._follow(future).add_done_callback(self._note_failure)
        return future

    async def is_empty_within(self, seconds: float) -> bool:
        """Whether the broker has acknowledged everything after so long."""
        # The flush is left alone: what it waits for is others' too.
        emptying = asyncio.ensure_future(self._empty())
        done, _ = await asyncio.wait([emptying], timeout=seconds)
        return bool(done)

    async def _empty(self) -> None:
        """Flush, and once more what was waiting for room meanwhile."""
        for _ in range(_ROUNDS):
            await self.producer.flush()
            await asyncio.sleep(_ROUND_SECONDS)

    async def flush(self) -> None:
        """Wait until the broker has acknowledged all that was sent.

        For who sends alone: of several that wait, only one is told of a failure.

        Raises:
            KafkaError: something that was sent since the last flush could not be delivered.
        """
        await self.producer.flush()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _follow(self, future: Acknowledgement) -> Acknowledgement:
        """Something is sent; it is noted when it is answered."""
        if not self._unanswered:
            self._moved_at = time.monotonic()
        self._unanswered += 1
        future.add_done_callback(self._note_answer)
        return future

    def _note_answer(self, _future: Acknowledgement) -> None:
        self._unanswered -= 1
        self._moved_at = time.monotonic()

    def _note_failure(self, future: Acknowledgement) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failure = error
