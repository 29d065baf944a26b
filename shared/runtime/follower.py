"""Following a quiet compacted topic: every process reads all of it by itself."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from shared.contracts.topics import Topic
from shared.runtime.kafka import make_consumer
from shared.runtime.log_ends import end_of_log
from shared.runtime.settings import Settings
from shared.runtime.slices import read_tail
from shared.runtime.wall_time import steady

WAIT_MS = 500
"""A broker that has nothing new keeps a question for so long; what is new, it says at once."""

Receive = Callable[[ConsumerRecord], None]

ASK_SECONDS: Final = 0.1
"""Between two questions where a topic ends."""

ANSWER_SECONDS: Final = 2.0
"""A broker that does not answer for so long is asked again."""


class Follower:
    """Hands every record of a single-partition topic to a callback, the newest past first.

    A compacted topic's last records hold what stands, so a start reads the tail only.
    """

    def __init__(
        self, settings: Settings, topic: Topic, receive: Receive, tail: int = 1000
    ) -> None:
        self._settings = settings
        self._tp = TopicPartition(settings.topic(topic.name), 0)
        self._consumer: AIOKafkaConsumer | None = None
        self._receive = receive
        self._tail = tail
        self._turns = 0
        self._received = 0
        """Offset before which all has been handed to the callback."""
        self.known_at = -math.inf
        """Up to when all that the broker had is received (`wall_time.steady`; see `keep_up`)."""
        self.progressed_at = time.monotonic()

    async def start(self) -> None:
        """Connect, and read what is there already."""
        consumer = make_consumer(self._settings, fetch_max_wait_ms=WAIT_MS)
        self._consumer = consumer
        await consumer.start()
        consumer.assign([self._tp])
        for record in await read_tail(consumer, self._tp, self._tail, least=1):
            self._receive(record)
        self._received = await consumer.position(self._tp)

    async def catch_up(self) -> None:
        """Wait until `run` has received all that is on the topic now.

        Raises:
            RuntimeError: before `start`.
        """
        if self._consumer is None:
            raise RuntimeError("the follower is not started")
        end = (await self._consumer.end_offsets([self._tp]))[self._tp]
        while await self._consumer.position(self._tp) < end:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the client has no event for it
        # The position moves on before the callback has seen the records: let that turn end.
        turns = self._turns
        while self._turns == turns:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def keep_up(self, stopping: asyncio.Event) -> None:
        """Ask again and again where the log ends, so that `known_at` follows the time.

        A fetch without records would not do: of one that was on its way while the process, or the
        network, stood still nobody knows how old it is. What is asked now is answered later.

        Raises:
            KafkaError: no broker lets us in.
        """
        # A broker answers each connection in turn: behind a fetch that waits, so would this.
        asking = make_consumer(self._settings)
        await asking.start()
        try:
            while not stopping.is_set():
                asked_at = steady()
                with contextlib.suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await self._received_all(asking)
                        self.known_at = asked_at
                await asyncio.sleep(max(asked_at + ASK_SECONDS - steady(), 0.01))
        finally:
            await asking.stop()

    async def _received_all(self, asking: AIOKafkaConsumer) -> None:
        end = await end_of_log(asking, self._tp)
        while self._received < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # the client has no event for it

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await self._consumer.stop()
            self._consumer = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Receive until `stopping` is set.

        Raises:
            RuntimeError: before `start`.
        """
        if self._consumer is None:
            raise RuntimeError("the follower is not started")
        while not stopping.is_set():
            await self._turn(self._consumer, timeout_ms=100)

    async def _turn(self, consumer: AIOKafkaConsumer, timeout_ms: int) -> None:
        self.progressed_at = time.monotonic()
        fetched = await consumer.getmany(self._tp, timeout_ms=timeout_ms)
        for record in fetched.get(self._tp, []):
            self._receive(record)
        self._received = await consumer.position(self._tp)
        self._turns += 1
