"""Writing to the contract's topics."""

import asyncio
import time
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer, ConsumerRecord
from msgspec import Struct

from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.topics import DEAD_LETTERS, GLOBAL_KEY, Topic
from shared.runtime import metrics
from shared.runtime.dead_letters import Header, letter_of
from shared.runtime.kafka import make_producer
from shared.runtime.settings import Settings

Acknowledgement = asyncio.Future[object]


class Publisher:
    """One producer of a process. Messages go out in batches; `flush` waits for them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._failure: BaseException | None = None

    async def start(self) -> None:
        """Connect."""
        producer = make_producer(self.settings)
        await producer.start()
        self._producer = producer

    async def stop(self) -> None:
        """Send what is waiting, and disconnect."""
        if self._producer is not None:
            await self._producer.stop()
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

    async def send(
        self,
        topic: Topic,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Iterable[Header] = (),
    ) -> Acknowledgement:
        """Queue one record; waits only where the queue is full.

        Returns:
            A future with the broker's acknowledgement.
        """
        future: Acknowledgement = await self.producer.send(
            self.settings.topic(topic.name),
            value,
            key=key,
            partition=partition,
            headers=list(headers),
        )
        future.add_done_callback(self._note_failure)
        metrics.MESSAGES_PUBLISHED.labels(topic.name).inc()
        return future

    async def send_for_host(self, topic: Topic, host: str, message: Struct) -> Acknowledgement:
        """Queue a message on the partition of its host's shard."""
        shard = shard_of(host, self.settings.partitions)
        return await self.send(topic, host.encode(), encode(message), partition=shard)

    async def send_global(self, topic: Topic, message: Struct) -> None:
        """Publish a message about everything (bandwidth, multipliers) and wait for the broker."""
        await (await self.send(topic, GLOBAL_KEY, encode(message), partition=0))

    async def dead_letter(self, record: ConsumerRecord, stage: str, reason: str) -> None:
        """Put a record that cannot be taken aside, as it came, with why."""
        key, value, headers = letter_of(record, stage, reason, time.time())
        metrics.DEAD_LETTERS.labels(stage, record.topic).inc()
        await self.send(DEAD_LETTERS, key, value, partition=0, headers=headers)

    async def flush(self) -> None:
        """Wait until the broker has acknowledged all that was sent.

        Raises:
            KafkaError: something that was sent since the last flush could not be delivered.
        """
        await self.producer.flush()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _note_failure(self, future: Acknowledgement) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failure = error
