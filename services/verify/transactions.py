"""Crawlers that publish their outcomes in Kafka's transactions, and abort some of them."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from shared.contracts.topics import Topic
from shared.runtime.kafka import started_producer
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

GATHER_SECONDS: Final = 0.25
"""What is due within this goes out in one transaction."""

ABORTED_SHARE: Final = 0.1
"""Transactions that are aborted when all of it has been sent, and made anew."""

AGAIN_SECONDS: Final = 0.5
"""After a failure; a producer of the same name has the broker end what the last one left open."""

_OPEN_MS: Final = 10_000
"""The broker itself ends a transaction that is open for so long."""


class Due(NamedTuple):
    """A message to send."""

    topic: Topic
    partition: int
    key: bytes
    value: bytes
    sent_at: float
    """When it was first due, Unix seconds."""


class Transactions:
    """One transactional producer.

    What a transaction held that was not committed goes out again, as crawlers do it; where nobody
    knows whether it was committed, it does not.
    """

    def __init__(
        self,
        settings: Settings,
        seed: int,
        committed: Callable[[Due, int], None],
        doubtful: Callable[[Due, BaseException], None],
    ) -> None:
        """Make it, not connected yet.

        Args:
            settings: of the broker.
            seed: of which transactions are aborted.
            committed: told of each message that was, and its offset.
            doubtful: told of each message of which nobody knows, and why.
        """
        self.counts = {"committed": 0, "aborted": 0, "failed": 0}
        """How they ended."""
        self._settings = settings
        self._rng = np.random.default_rng([seed, 16])
        self._committed = committed
        self._doubtful = doubtful
        self._waiting: list[Due] = []
        self._under_way: list[Due] = []
        self._producer: AIOKafkaProducer | None = None

    @property
    def waiting(self) -> int:
        """Messages that are not committed yet."""
        return len(self._waiting) + len(self._under_way)

    def add(self, due: Due) -> None:
        """Send a message with the next transaction."""
        self._waiting.append(due)

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            await asyncio.sleep(GATHER_SECONDS)
            if not self._waiting:
                continue
            self._under_way, self._waiting = self._waiting, []
            try:
                await self._write(self._under_way)
            except KafkaError as error:
                self.counts["failed"] += 1
                log.info("a transaction failed", error=str(error))
                self._waiting[:0] = self._under_way
                await self.stop()
                await asyncio.sleep(AGAIN_SECONDS)
            self._under_way = []

    async def _write(self, batch: list[Due]) -> None:
        producer = await self._connected()
        name = self._settings.topic
        await producer.begin_transaction()
        sends = [
            await producer.send(name(due.topic.name), due.value, due.key, partition=due.partition)
            for due in batch
        ]
        places = await asyncio.gather(*sends)
        if self._rng.random() < ABORTED_SHARE:
            await producer.abort_transaction()
            self.counts["aborted"] += 1
            self._waiting[:0] = batch
            return
        try:
            await producer.commit_transaction()
        except KafkaError as error:
            for due in batch:
                self._doubtful(due, error)
            batch.clear()
            raise
        self.counts["committed"] += 1
        for due, place in zip(batch, places, strict=True):
            self._committed(due, place.offset)

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = await started_producer(
                self._settings,
                transactional_id=f"crawlers-{self._settings.instance}",
                transaction_timeout_ms=_OPEN_MS,
            )
        return self._producer

    async def stop(self) -> None:
        """Disconnect; what is under way is not committed."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()
