"""What the estimator publishes: learned parameters, and dead letters."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from services.estimator.decoding import Refused
from shared.runtime import metrics
from shared.runtime.publisher import Publisher

STAGE = "estimator"

Announcements = Mapping[tuple[str, int], Sequence[tuple[bytes, bytes]]]
"""(Topic without prefix, shard) → keys and values."""


class Announcer(Protocol):
    """Where a batch's messages go."""

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Publish, and wait until the broker has everything.

        Returns:
            (topic, shard) → offset after its last announcement.
        """
        ...


class KafkaAnnouncer:
    """Sends in prepared batches: a tenth of the cost of one `send` a message."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Publish, and wait until the broker has everything.

        Returns:
            (topic, shard) → offset after its last announcement.

        Raises:
            KafkaError: something could not be delivered.
        """
        for letter in refused:
            await self._publisher.dead_letter(letter.record, STAGE, letter.reason)
        sent = [(key, messages) for key, messages in announcements.items() if messages]
        producer, settings = self._publisher.producer, self._publisher.settings
        ends = await asyncio.gather(
            *(
                _send(producer, settings.topic(topic), shard, messages)
                for (topic, shard), messages in sent
            )
        )
        if refused:
            await self._publisher.flush()
        for (topic, _), messages in sent:
            metrics.MESSAGES_PUBLISHED.labels(topic).inc(len(messages))
        return {key: end for (key, _), end in zip(sent, ends, strict=True)}


async def _send(
    producer: AIOKafkaProducer, topic: str, shard: int, messages: Sequence[tuple[bytes, bytes]]
) -> int:
    """Send one shard's messages; the offset after the last one."""
    acknowledgements: list[asyncio.Future[RecordMetadata]] = []
    batch = producer.create_batch()
    for key, value in messages:
        if batch.append(timestamp=None, key=key, value=value) is None:
            acknowledgements.append(await producer.send_batch(batch, topic, partition=shard))
            batch = producer.create_batch()
            batch.append(timestamp=None, key=key, value=value)
    in_last = batch.record_count()
    acknowledgements.append(await producer.send_batch(batch, topic, partition=shard))
    stored = await asyncio.gather(*acknowledgements)
    return int(stored[-1].offset) + int(in_last)
