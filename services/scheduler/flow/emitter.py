"""Crawl requests on their way to Kafka."""

import asyncio
import math
from typing import Final

from aiokafka import AIOKafkaProducer

from services.scheduler import metrics
from services.scheduler.demand.class_reports import label_of
from services.scheduler.flow.slot_filler import Emission, rest_of
from services.scheduler.state.report_notes import REASONS
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime import metrics as common_metrics
from shared.runtime.publisher import Publisher, filled_batches
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL

_REQUESTS_BY_TIER: Final = [metrics.REQUESTS.labels(reason) for reason in REASONS]

_MOST_UNACKNOWLEDGED: Final = 2_000
"""Batches on their way to the broker before filling slots waits for it."""

TAKEN_SECONDS: Final = 1.5
"""A producer that takes no batch of a shard for so long (wall) has one there that the brokers do
not acknowledge. The other shards do not wait any longer with it, and what the batch asks for would
be late."""


class Emitter:
    """Sends requests without waiting for the broker's word; a failure shows at the next call."""

    def __init__(self, settings: Settings, publisher: Publisher) -> None:
        self._topic = settings.topic(CRAWL_REQUESTS.name)
        self._publisher = publisher
        self._waiting: dict[asyncio.Future[object], tuple[int, float]] = {}
        """Batches that the broker has not acknowledged → the shard and the first slot of each."""
        self._stuck: set[int] = set()
        self._handing = math.inf
        """The first slot of what is handed to the producer just now."""
        self._failure: BaseException | None = None

    @property
    def stuck(self) -> frozenset[int]:
        """Shards of which the producer takes no more before the broker acknowledges something."""
        return frozenset(self._stuck)

    async def send(self, emissions: list[Emission]) -> list[Emission]:
        """Hand requests to the producer.

        Returns:
            those that it has not taken in time, and never will.

        Raises:
            KafkaError: these or earlier requests could not be delivered.
        """
        if self._failure is not None:
            raise self._failure
        producer = self._publisher.producer
        filled = [emission for emission in emissions if emission.messages]
        left = []
        try:
            self._handing = min((_first_slot(one) for one in filled), default=math.inf)
            for emission in filled:
                taken = await self._send_shard(producer, emission)
                _count(emission, taken)
                if taken < len(emission.messages):
                    left.append(rest_of(emission, taken))
        finally:
            self._handing = math.inf
        while len(self._waiting) > _MOST_UNACKNOWLEDGED:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        return left

    async def is_sent_within(self, seconds: float) -> bool:
        """Whether the broker has all requests after so long."""
        return await self._publisher.is_empty_within(seconds)

    def unsent_since(self) -> float:
        """The first slot of which the broker may not have the request, clock time; infinite: it has
        all."""
        first_slots = (first_slot for _, first_slot in self._waiting.values())
        return min(self._handing, min(first_slots, default=math.inf))

    async def _send_shard(self, producer: AIOKafkaProducer, emission: Emission) -> int:
        """How many of a shard's requests the producer has taken, from the first one on."""
        headers = {number: span.mark.headers() for number, span in emission.spans.items()}
        shard, taken = emission.shard.number, 0
        for batch in filled_batches(producer, emission.messages, own=headers):
            try:
                async with asyncio.timeout(TAKEN_SECONDS):
                    sent = await producer.send_batch(batch, self._topic, partition=shard)
            except TimeoutError:
                self._note_stuck(shard)
                break
            self._follow(sent, shard, _first_slot(emission))
            taken += batch.record_count()
        ended = WALL.now()
        for place, span in emission.spans.items():
            if place < taken:
                span.end(ended)
        return taken

    def _note_stuck(self, shard: int) -> None:
        # Where nothing waits it was the topic that could not be looked up: no word would come.
        if any(shard == waiting for waiting, _ in self._waiting.values()):
            self._stuck.add(shard)

    def _follow(
        self, acknowledgement: "asyncio.Future[object]", shard: int, first_slot: float
    ) -> None:
        self._waiting[acknowledgement] = shard, first_slot
        acknowledgement.add_done_callback(self._acknowledged)

    def _acknowledged(self, acknowledgement: "asyncio.Future[object]") -> None:
        shard, _ = self._waiting.pop(acknowledgement)
        self._stuck.discard(shard)
        if not acknowledgement.cancelled() and acknowledgement.exception() is not None:
            self._failure = acknowledgement.exception()


def _count(emission: Emission, taken: int) -> None:
    """The producer has so many of the requests. Where they are made some are taken back."""
    common_metrics.MESSAGES_PUBLISHED.labels(CRAWL_REQUESTS.name).inc(taken)
    for counter, count in zip(_REQUESTS_BY_TIER, emission.by_tier(taken).tolist(), strict=True):
        if count:
            counter.inc(count)
    if emission.named:
        by_class = emission.by_class(taken)
        for name, theirs in emission.named.items():
            if count := int(by_class[theirs].sum()):
                metrics.CLASS_REQUESTS.labels(label_of(name)).inc(count)


def _first_slot(emission: Emission) -> float:
    return float(emission.picks["time"][0])
