"""Everything that the world outside the system publishes, and the account of it.

While a fault asks for it, messages go out twice, or late and out of order.
"""

import asyncio
import heapq
import itertools
import math
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xxhash
from aiokafka.errors import KafkaError

from services.verify.transactions import Due, Transactions
from shared.contracts.codec import encode
from shared.contracts.daily import ScheduledRate
from shared.contracts.identity import shard_of
from shared.contracts.messages import Bandwidth, GroupLimit
from shared.contracts.topics import BANDWIDTH, CRAWL_OUTCOMES, GLOBAL_KEY, GROUP_LIMITS, Topic
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY

TURN_SECONDS: Final = 0.01
LATEST_REPEAT_SECONDS: Final = 1.5
"""A message that goes out twice does so within this."""

RAMP_STEP_SECONDS: Final = 0.5
"""A ramp of the budget is noted in steps, each by its higher end."""

SLOW_SECONDS: Final = 0.5
"""The broker has a message within this, unless it or the machine stands still."""

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

    def __init__(self, settings: Settings, seed: int, *, in_transactions: bool = False) -> None:
        """Make it, not connected yet.

        Args:
            settings: of the system under test.
            seed: of what goes out twice, or late, and of aborted transactions.
            in_transactions: outcomes of half of the shards go out in transactions of Kafka's.
        """
        self.account = Account()
        self.twice = False
        self.late = False
        self.budget_changes: list[tuple[float, float]] = []
        """When it was set (Unix seconds, the broker had it), and to what (crawls per second)."""
        self.slow: list[tuple[float, float]] = []
        """Periods, rising, in which messages took longer than `SLOW_SECONDS`; Unix seconds."""
        self._settings = settings
        self._publisher = Publisher(settings)
        self._rng = np.random.default_rng([seed, 11])
        self.partitions = settings.partitions
        """As far as these producers know."""
        self._queue: list[tuple[float, int, Topic, int, bytes, bytes]] = []
        self._order = itertools.count()
        self._unacknowledged: set[asyncio.Future[Any]] = set()
        self.transactions: Transactions | None = None
        if in_transactions:
            self.transactions = Transactions(settings, seed, self._committed, self._doubtful)

    async def start(self) -> None:
        """Connect."""
        await self._publisher.start()

    async def stop(self) -> None:
        """Send what is waiting, and disconnect; what is in a transaction is not committed."""
        await self._publisher.stop()
        if self.transactions is not None:
            await self.transactions.stop()

    def queue(self, topic: Topic, host: str, message: Any, *, on_time: bool = False) -> None:
        """Publish a message of a host soon.

        Args:
            topic: keyed by host.
            host: whose it is.
            message: a struct of the contract.
            on_time: whatever the faults say.
        """
        key, value = host.encode(), encode(message)
        # Nobody's signals are of a shard yet: their topic keeps the partitions that it has.
        grows = topic.partitioning == "shards"
        partition = shard_of(host, self.partitions if grows else self._settings.partitions)
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
        in_transactions = 0 if self.transactions is None else self.transactions.waiting
        return len(self._queue) + len(self._unacknowledged) + in_transactions

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        if self.transactions is None:
            await self._run()
        else:
            await asyncio.gather(self._run(), self.transactions.run())

    async def _run(self) -> None:
        while True:
            await self._send_due()
            await asyncio.sleep(TURN_SECONDS)

    async def send_now(self) -> None:
        """Send what is due, and wait until the broker has it; before `run`."""
        await self._send_due()
        if self._unacknowledged:
            await asyncio.wait(self._unacknowledged)

    async def _send_due(self) -> None:
        while self._queue and self._queue[0][0] <= time.monotonic():
            _, _, topic, partition, key, value = heapq.heappop(self._queue)
            if self.transactions is not None and topic is CRAWL_OUTCOMES and partition % 2:
                self.transactions.add(Due(topic, partition, key, value, time.time()))
            else:
                await self._send(topic, partition, key, value)

    def _committed(self, due: Due, offset: int) -> None:
        self.note_way(due.sent_at, time.time())
        self.account.add(due.topic.name, due.partition, offset, due.value)

    def _doubtful(self, due: Due, why: object) -> None:
        self.note_way(due.sent_at, time.time())
        self._refused(due.topic, due.partition, due.value, due.sent_at, why)

    def _refused(
        self, topic: Topic, partition: int, value: bytes, sent_at: float, why: object
    ) -> None:
        refusal = Refusal(topic.name, partition, value, sent_at, time.time(), str(why))
        self.account.refused.append(refusal)

    async def _send(self, topic: Topic, partition: int, key: bytes, value: bytes) -> None:
        sent_at = time.time()

        def refused(why: object) -> None:
            self._refused(topic, partition, value, sent_at, why)

        def done(acknowledged: asyncio.Future[Any]) -> None:
            self._unacknowledged.discard(acknowledged)
            self.note_way(sent_at, time.time())
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

    def note_way(self, sent_at: float, known_at: float) -> None:
        """Note how long a message took; Unix seconds."""
        if known_at - sent_at <= SLOW_SECONDS:
            return
        begin, end = sent_at, known_at
        while self.slow and self.slow[-1][1] >= begin:
            before = self.slow.pop()
            begin, end = min(begin, before[0]), max(end, before[1])
        self.slow.append((begin, end))

    async def set_budget(self, crawls_per_second: float) -> None:
        """Change the budget, and wait until the broker has it."""
        await self._publish_budget(Bandwidth(crawls_per_second, set_at=time.time()))
        self.budget_changes.append((time.time(), crawls_per_second))

    async def ramp_budget(self, crawls_per_second: float, seconds: float) -> None:
        """Change the budget evenly, and wait until it is there.

        What it may be at most is noted step by step.

        Args:
            crawls_per_second: at the end.
            seconds: that it takes.
        """
        began, before = time.time(), self.budget_changes[-1][1]
        await self._publish_budget(
            Bandwidth(crawls_per_second, began, ramp_seconds=seconds, ramp_from=before)
        )
        slope = (crawls_per_second - before) / seconds
        for step in np.arange(0.0, seconds, RAMP_STEP_SECONDS).tolist():
            await asyncio.sleep(max(began + step - time.time(), 0.0))
            ends = (before + slope * step, before + slope * min(step + RAMP_STEP_SECONDS, seconds))
            # As it was said, however late this task has its turn.
            self.budget_changes.append((began + step, max(ends)))
        await asyncio.sleep(max(began + seconds - time.time(), 0.0))
        self.budget_changes.append((began + seconds, crawls_per_second))

    async def schedule_budget(self, rates: Sequence[float], seconds: int) -> None:
        """Change the budget by the time of the day, and wait until the last rate is there.

        Args:
            rates: one after the other; the first at once.
            seconds: that each of them holds.
        """
        first = math.floor(time.time())
        steps = [(float(first + place * seconds), rate) for place, rate in enumerate(rates)]
        schedule = [ScheduledRate(int(at % SECONDS_PER_DAY), rate) for at, rate in steps]
        schedule.sort(key=lambda step: step.second)
        await self._publish_budget(Bandwidth(rates[0], time.time(), schedule=schedule))
        self.budget_changes.append((time.time(), rates[0]))
        for at, rate in steps[1:]:
            await asyncio.sleep(max(at - time.time(), 0.0))
            self.budget_changes.append((max(at, self.budget_changes[-1][0]), rate))

    async def limit_group(self, group: str, crawls_per_second: float) -> None:
        """Limit a group of hosts, and wait until the broker has it."""
        value = encode(GroupLimit(group, crawls_per_second))
        await (await self._publisher.send(GROUP_LIMITS, group.encode(), value, partition=0))

    async def _publish_budget(self, message: Bandwidth) -> None:
        await (await self._publisher.send(BANDWIDTH, GLOBAL_KEY, encode(message), partition=0))
