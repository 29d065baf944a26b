"""Crawl requests on their way to Kafka."""

import asyncio
import math
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
        self._waiting: dict[asyncio.Future[object], float] = {}
        """Batches that the broker has not acknowledged → the first slot of each."""
        self._handing = math.inf
        """The first slot of what is handed to the producer just now."""
        self._failure: BaseException | None = None

    async def send(self, emissions: list[Emission]) -> None:
        """Hand requests to the producer.

        Raises:
            KafkaError: these or earlier requests could not be delivered.
        """
        if self._failure is not None:
            raise self._failure
        producer = self._publisher.producer
        filled = [emission for emission in emissions if emission.messages]
        try:
            self._handing = min((_first_slot(one) for one in filled), default=math.inf)
            for emission in filled:
                await self._send_shard(producer, emission)
                common_metrics.MESSAGES_PUBLISHED.labels(CRAWL_REQUESTS.name).inc(
                    len(emission.messages)
                )
        finally:
            self._handing = math.inf
        while len(self._waiting) > _MOST_UNACKNOWLEDGED:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)

    async def is_sent_within(self, seconds: float) -> bool:
        """Whether the broker has all requests after so long."""
        return await self._publisher.is_empty_within(seconds)

    def unsent_since(self) -> float:
        """The first slot of which the broker may not have the request, clock time; infinite: it has
        all."""
        return min(self._handing, min(self._waiting.values(), default=math.inf))

    async def _send_shard(self, producer: AIOKafkaProducer, emission: Emission) -> None:
        headers = {number: span.mark.headers() for number, span in emission.spans.items()}
        for batch in filled_batches(producer, emission.messages, own=headers):
            number = emission.shard.number
            sent = await producer.send_batch(batch, self._topic, partition=number)
            self._follow(sent, _first_slot(emission))
        ended = WALL.now()
        for span in emission.spans.values():
            span.end(ended)

    def _follow(self, acknowledgement: "asyncio.Future[object]", first_slot: float) -> None:
        self._waiting[acknowledgement] = first_slot
        acknowledgement.add_done_callback(self._acknowledged)

    def _acknowledged(self, acknowledgement: "asyncio.Future[object]") -> None:
        self._waiting.pop(acknowledgement, None)
        if not acknowledgement.cancelled() and acknowledgement.exception() is not None:
            self._failure = acknowledgement.exception()


def _first_slot(emission: Emission) -> float:
    return float(emission.picks["time"][0])
