"""Crawl requests on their way to Kafka."""

import asyncio
from typing import Final

from aiokafka import AIOKafkaProducer

from services.scheduler.flow.slot_filler import Emission
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime import metrics as common_metrics
from shared.runtime.publisher import Publisher, filled_batches
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL

_MOST_UNACKNOWLEDGED: Final = 2_000
"""Batches on their way to the broker before filling slots waits for it."""


class Emitter:
    """Sends requests without waiting for the broker's word; a failure shows at the next call."""

    def __init__(self, settings: Settings, publisher: Publisher) -> None:
        self._topic = settings.topic(CRAWL_REQUESTS.name)
        self._publisher = publisher
        self._waiting: set[asyncio.Future[object]] = set()
        self._failure: BaseException | None = None

    async def send(self, emissions: list[Emission]) -> None:
        """Hand requests to the producer.

        Raises:
            KafkaError: these or earlier requests could not be delivered.
        """
        if self._failure is not None:
            raise self._failure
        producer = self._publisher.producer
        for emission in emissions:
            if not emission.messages:
                continue
            await self._send_shard(producer, emission)
            common_metrics.MESSAGES_PUBLISHED.labels(CRAWL_REQUESTS.name).inc(
                len(emission.messages)
            )
        while len(self._waiting) > _MOST_UNACKNOWLEDGED:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)

    async def is_sent_within(self, seconds: float) -> bool:
        """Whether the broker has all requests after so long."""
        return await self._publisher.is_empty_within(seconds)

    async def _send_shard(self, producer: AIOKafkaProducer, emission: Emission) -> None:
        headers = {number: span.mark.headers() for number, span in emission.spans.items()}
        for batch in filled_batches(producer, emission.messages, own=headers):
            number = emission.shard.number
            self._follow(await producer.send_batch(batch, self._topic, partition=number))
        ended = WALL.now()
        for span in emission.spans.values():
            span.end(ended)

    def _follow(self, acknowledgement: "asyncio.Future[object]") -> None:
        self._waiting.add(acknowledgement)
        acknowledgement.add_done_callback(self._acknowledged)

    def _acknowledged(self, acknowledgement: "asyncio.Future[object]") -> None:
        self._waiting.discard(acknowledgement)
        if not acknowledgement.cancelled() and acknowledgement.exception() is not None:
            self._failure = acknowledgement.exception()
