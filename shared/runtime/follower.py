"""Following a quiet compacted topic: every process reads all of it by itself."""

import asyncio
import time
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition

from shared.contracts.topics import Topic
from shared.runtime.kafka import make_consumer
from shared.runtime.settings import Settings

Receive = Callable[[ConsumerRecord], None]


class Follower:
    """Hands every record of a single-partition topic to a callback, the newest past first.

    A compacted topic's last records hold what stands, so a start reads the tail only.
    """

    def __init__(
        self, settings: Settings, topic: Topic, receive: Receive, tail: int = 1000
    ) -> None:
        self._tp = TopicPartition(settings.topic(topic.name), 0)
        self._consumer = make_consumer(settings)
        self._receive = receive
        self._tail = tail
        self.progressed_at = time.monotonic()

    async def start(self) -> None:
        """Connect, and read what is there already."""
        await self._consumer.start()
        self._consumer.assign([self._tp])
        ends = await self._consumer.end_offsets([self._tp])
        begins = await self._consumer.beginning_offsets([self._tp])
        end = ends[self._tp]
        self._consumer.seek(self._tp, max(begins[self._tp], end - self._tail))
        while await self._consumer.position(self._tp) < end:
            await self._turn(timeout_ms=1000)

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def run(self, stopping: asyncio.Event) -> None:
        """Receive until `stopping` is set."""
        while not stopping.is_set():
            await self._turn(timeout_ms=100)

    async def _turn(self, timeout_ms: int) -> None:
        self.progressed_at = time.monotonic()
        fetched = await self._consumer.getmany(self._tp, timeout_ms=timeout_ms)
        for record in fetched.get(self._tp, []):
            self._receive(record)
