"""What is read first: a page is made known before anything is said of it.

Topics are read independently of each other, so what is said of a page may be read before the page
is: where its topic is slower, or was read just before. So records wait until the topic that comes
first is read as far as it went when they were read, however long that takes: nothing waits for
more than what is there, and so for nothing that may never come.
"""

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_PARAMETERS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.holding import Holding, cut, positions_of
from shared.runtime.settings import Settings
from shared.runtime.slices import Fetched

_ANSWER_SECONDS: Final = 2.0
"""The broker is asked again after so long."""

LOOK_SECONDS: Final = 2.0
"""Records that wait are looked at again after so long, if not before: an end that was said may be
no more (a broker that lost records), and the first topic is then never read as far."""


@dataclass(slots=True)
class _Waiting:
    """Records of a partition that wait."""

    end: float
    """Where the first topic went to when they were read; infinite: not known."""
    until: Mapping[TopicPartition, int]
    """Topic → offset up to which records were read then."""
    paused: set[TopicPartition] = field(default_factory=set)
    """What is not fetched meanwhile: it would be read again and again."""
    look_at: float = 0.0
    """When it is read again (monotonic)."""


class Precedence(Holding[_Waiting]):
    """Holds back records of some topics until another one has been read so far."""

    def __init__(self, first: str, followers: AbstractSet[str]) -> None:
        """Make it.

        Args:
            first: name of the topic that is read first.
            followers: names of the topics that wait for it, partition by partition.
        """
        super().__init__()
        self._first = first
        self._followers = followers

    @classmethod
    def of_pages(cls, settings: Settings) -> Self:
        """Pages are known before what crawls and signals say of them, and what was learned."""
        about = CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_PARAMETERS
        followers = {settings.topic(topic.name) for topic in about}
        return cls(settings.topic(PAGE_UPDATES.name), followers)

    async def hold_back(self, consumer: AIOKafkaConsumer, fetched: Fetched) -> None:
        """Take out of what was read what has to wait; the consumer will read it again.

        To be called after each reading, also where nothing came.
        """
        followers: dict[TopicPartition, list[TopicPartition]] = {}
        for tp in fetched:
            if tp.topic in self._followers:
                followers.setdefault(TopicPartition(self._first, tp.partition), []).append(tp)
        try:
            await self._go_on(consumer)
            positions = await positions_of(consumer, followers)
            # Asked now that the followers' records are here: what a fetch said of the first topic
            # may be older than they are, and clocks do not tell.
            ends = await _ends_of(consumer, list(followers))
            for first, tps in followers.items():
                offsets = {tp: fetched[tp][-1].offset + 1 for tp in tps}
                waited = self._parts.get(first.partition)
                admitted = self.admit(first.partition, positions[first], ends[first], offsets)
                if waited is not None and waited is not self._parts.get(first.partition):
                    # One topic has learned that the wait is over; the others wait no longer either.
                    consumer.resume(*waited.paused)
                for tp in tps:
                    cut(consumer, fetched, tp, admitted.get(tp, 0))
                self._pause(consumer, first.partition, [tp for tp in tps if tp not in fetched])
        except IllegalStateError:
            # The partition has just gone to another member: nothing of it is handled.
            return

    def admit(
        self, partition: int, position: int, end: float, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Up to which offsets records may be handled. Pure.

        Args:
            partition: of all these topics.
            position: up to which the first topic is read.
            end: up to which it goes at least; infinite: not known.
            offsets: up to which the followers are read.
        """
        waiting = self._parts.get(partition)
        if position >= end:
            self._parts.pop(partition, None)
            return offsets
        if waiting is not None and position < waiting.end:
            waiting.end = min(waiting.end, end)
            return {}
        self._parts[partition] = _Waiting(end, offsets)
        if waiting is None:
            return {}
        return {tp: min(offset, waiting.until.get(tp, 0)) for tp, offset in offsets.items()}

    def _pause(
        self, consumer: AIOKafkaConsumer, partition: int, held: Iterable[TopicPartition]
    ) -> None:
        """Do not fetch what would only have to wait again."""
        waiting = self._parts.get(partition)
        if waiting is None or waiting.end == math.inf:
            return
        for tp in held:
            consumer.pause(tp)
            waiting.paused.add(tp)
            waiting.look_at = time.monotonic() + LOOK_SECONDS

    async def _go_on(self, consumer: AIOKafkaConsumer) -> None:
        """Fetch again what has waited long enough."""
        paused = {
            TopicPartition(self._first, partition): waiting
            for partition, waiting in self._parts.items()
            if waiting.paused
        }
        positions = await positions_of(consumer, paused)
        for first, waiting in paused.items():
            if positions[first] >= waiting.end or time.monotonic() >= waiting.look_at:
                consumer.resume(*waiting.paused)
                waiting.paused.clear()


async def _ends_of(
    consumer: AIOKafkaConsumer, partitions: list[TopicPartition]
) -> dict[TopicPartition, float]:
    """Where partitions end; infinite if the broker does not say so soon."""
    if not partitions:
        return {}
    try:
        return dict(await asyncio.wait_for(consumer.end_offsets(partitions), _ANSWER_SECONDS))
    except IllegalStateError:
        raise
    except (KafkaError, TimeoutError):
        return dict.fromkeys(partitions, math.inf)
