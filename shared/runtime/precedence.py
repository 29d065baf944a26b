"""What is read first: a page is made known before anything is said of it.

Topics are read independently of each other, so what is said of a page may be read before the page
is: where its topic is slower, or was read just before. So records wait until the topic that comes
first is read as far as it went when they were read.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from shared.runtime.lag import end_of
from shared.runtime.slices import Fetched

PATIENCE_SECONDS: Final = 10.0
"""Records do not wait for longer: it may be that there is nothing more to read."""

_ANSWER_SECONDS: Final = 2.0
"""The broker is asked again after so long."""


@dataclass(slots=True)
class _Waiting:
    """Records of a partition that wait."""

    since: float
    end: float
    """Where the first topic went to when they were read; infinite: not known."""
    until: Mapping[TopicPartition, int]
    """Topic → offset up to which records were read then."""


class Precedence:
    """Holds back records of some topics until another one has been read so far."""

    def __init__(self, first: str, followers: AbstractSet[str]) -> None:
        """Make it.

        Args:
            first: name of the topic that is read first.
            followers: names of the topics that wait for it, partition by partition.
        """
        self._first = first
        self._followers = followers
        self._waiting: dict[int, _Waiting] = {}

    def forget(self) -> None:
        """Partitions come and go: what waited is read again."""
        self._waiting.clear()

    async def hold_back(self, consumer: AIOKafkaConsumer, fetched: Fetched) -> None:
        """Take out of what was read what has to wait; the consumer will read it again."""
        followers: dict[TopicPartition, list[TopicPartition]] = {}
        for tp in fetched:
            if tp.topic in self._followers:
                followers.setdefault(TopicPartition(self._first, tp.partition), []).append(tp)
        try:
            positions = {first: await consumer.position(first) for first in followers}
            unsure = [
                first
                for first, tps in followers.items()
                if not _is_read(
                    consumer,
                    first,
                    positions[first],
                    max(fetched[tp][-1].timestamp for tp in tps),
                )
            ]
            ends = positions | await _ends(consumer, unsure)
            for first, tps in followers.items():
                offsets = {tp: fetched[tp][-1].offset + 1 for tp in tps}
                admitted = self.admit(
                    first.partition, positions[first], ends[first], offsets, time.monotonic()
                )
                for tp in tps:
                    _cut(consumer, fetched, tp, admitted.get(tp, 0))
        except IllegalStateError:
            # The partition has just gone to another member: nothing of it is handled.
            return

    def admit(
        self,
        partition: int,
        position: int,
        end: float,
        offsets: Mapping[TopicPartition, int],
        now: float,
    ) -> Mapping[TopicPartition, int]:
        """Up to which offsets records may be handled. Pure.

        Args:
            partition: of all these topics.
            position: up to which the first topic is read.
            end: up to which it goes at least; infinite: not known.
            offsets: up to which the followers are read.
            now: wall (monotonic) seconds.
        """
        waiting = self._waiting.get(partition)
        if position >= end or (waiting and now - waiting.since > PATIENCE_SECONDS):
            self._waiting.pop(partition, None)
            return offsets
        if waiting is not None and position < waiting.end:
            waiting.end = min(waiting.end, end)
            return {}
        self._waiting[partition] = _Waiting(now, end, offsets)
        if waiting is None:
            return {}
        return {tp: min(offset, waiting.until.get(tp, 0)) for tp, offset in offsets.items()}


def _is_read(
    consumer: AIOKafkaConsumer, first: TopicPartition, position: int, since_ms: int
) -> bool:
    """Whether the broker has said, at a time or later, that a partition is read to its end.

    It says so with every answer to a fetch, so that it has to be asked only after a backlog. What a
    message speaks of is older than the message.
    """
    end, said_at_ms = end_of(consumer, first), consumer.last_poll_timestamp(first)
    return end is not None and position >= end and said_at_ms is not None and said_at_ms >= since_ms


async def _ends(
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


def _cut(consumer: AIOKafkaConsumer, fetched: Fetched, tp: TopicPartition, until: int) -> None:
    """Leave only the records before an offset, and read the others again."""
    records = fetched[tp]
    kept = [record for record in records if record.offset < until]
    if len(kept) == len(records):
        return
    consumer.seek(tp, records[len(kept)].offset)
    if kept:
        fetched[tp] = kept
    else:
        del fetched[tp]
