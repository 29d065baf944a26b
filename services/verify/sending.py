"""Everything that the world outside the system publishes, and the account of it.

While a fault asks for it, messages go out twice, or late and out of order.
"""

import asyncio
import heapq
import itertools
import time
from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xxhash
from aiokafka.errors import KafkaError

from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH, GLOBAL_KEY, Topic
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

TURN_SECONDS: Final = 0.01
LATEST_REPEAT_SECONDS: Final = 1.5
"""A message that goes out twice does so within this."""

LATEST_SECONDS: Final = 2.5
"""A message that is held back is held for at most so long."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that the broker did not acknowledge: it may be on its topic all the same."""

    topic: str
    partition: int
    value: bytes
    sent_at: float
    """Unix seconds."""
    refused_at: float
    why: str


@dataclass(slots=True)
class Account:
    """What the broker has acknowledged: offsets and hashes of the values, by topic and partition.

    A dict a partition would be ten times the size.
    """

    offsets: dict[tuple[str, int], "array[int]"] = field(default_factory=dict)
    hashes: dict[tuple[str, int], "array[int]"] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    """What it did not acknowledge."""

    def add(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Note a record."""
        key = (topic, partition)
        self.offsets.setdefault(key, array("q")).append(offset)
        self.hashes.setdefault(key, array("Q")).append(xxhash.xxh3_64_intdigest(value))

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(map(len, self.offsets.values()))


class Sender:
    """Publishes for the world; `twice` and `late` are switched by faults."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.account = Account()
        self.twice = False
        self.late = False
        self.budget_changes: list[tuple[float, float]] = []
        """When it was set (Unix seconds, the broker had it), and to what (crawls per second)."""
        self._settings = settings
        self._publisher = Publisher(settings)
        self._rng = np.random.default_rng([seed, 11])
        self._queue: list[tuple[float, int, Topic, int, bytes, bytes]] = []
        self._order = itertools.count()
        self._unacknowledged: set[asyncio.Future[Any]] = set()

    async def start(self) -> None:
        """Connect."""
        await self._publisher.start()

    async def stop(self) -> None:
        """Send what is waiting, and disconnect."""
        await self._publisher.stop()

    def queue(self, topic: Topic, host: str, message: Any, *, on_time: bool = False) -> None:
        """Publish a message of a host soon.

        Args:
            topic: keyed by host.
            host: whose it is.
            message: a struct of the contract.
            on_time: whatever the faults say.
        """
        key, value = host.encode(), encode(message)
        partition = shard_of(host, self._settings.partitions)
        now = time.monotonic()
        delay = self._rng.uniform(0.0, LATEST_SECONDS) if self.late and not on_time else 0.0
        self._push(now + delay, topic, partition, key, value)
        if self.twice and not on_time:
            again = self._rng.uniform(0.0, LATEST_REPEAT_SECONDS)
            self._push(now + delay + again, topic, partition, key, value)

    def _push(self, due: float, topic: Topic, partition: int, key: bytes, value: bytes) -> None:
        heapq.heappush(self._queue, (due, next(self._order), topic, partition, key, value))

    @property
    def waiting(self) -> int:
        """Messages that the broker has not got yet."""
        return len(self._queue) + len(self._unacknowledged)

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            while self._queue and self._queue[0][0] <= time.monotonic():
                _, _, topic, partition, key, value = heapq.heappop(self._queue)
                await self._send(topic, partition, key, value)
            await asyncio.sleep(TURN_SECONDS)

    async def _send(self, topic: Topic, partition: int, key: bytes, value: bytes) -> None:
        sent_at = time.time()

        def refused(why: object) -> None:
            refusal = Refusal(topic.name, partition, value, sent_at, time.time(), str(why))
            self.account.refused.append(refusal)

        def done(acknowledged: asyncio.Future[Any]) -> None:
            self._unacknowledged.discard(acknowledged)
            if acknowledged.cancelled():
                refused("cancelled")
            elif (error := acknowledged.exception()) is not None:
                refused(error)
            else:
                self.account.add(topic.name, partition, acknowledged.result().offset, value)

        try:
            future = await self._publisher.send(topic, key, value, partition=partition)
        except KafkaError as error:
            refused(error)
            return
        self._unacknowledged.add(future)
        future.add_done_callback(done)

    async def set_budget(self, crawls_per_second: float) -> None:
        """Change the budget, and wait until the broker has it."""
        message = Bandwidth(crawls_per_second, set_at=time.time())
        future = await self._publisher.send(BANDWIDTH, GLOBAL_KEY, encode(message), partition=0)
        await future
        self.budget_changes.append((time.time(), crawls_per_second))
