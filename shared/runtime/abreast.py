"""What was written at one time is read at one time, also by who has hours to read.

Topics are read independently of each other. Who was away for an hour could read an hour of crawls
before anything of that hour's signals: what was signalled before a crawl would be heard of after
it, and not count for it. So while a partition has late records, those of a topic wait that were
written later than the others of it are read, but for a moment.

Producers' clocks may be anything. So nothing waits for what does not come closer: while a reader is
no faster than time, nothing waits.
"""

import math
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError

from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime.holding import Holding, cut, positions_of
from shared.runtime.lag import end_of
from shared.runtime.settings import Settings
from shared.runtime.slices import Fetched

LATE_SECONDS: Final = 10.0
"""Records that were written so long ago are late; where none is, topics are abreast anyway."""

SLACK_SECONDS: Final = 0.5
"""A topic may be read so much further than the others. Where records come one by one, topics that
took turns at each of them would be read at half the speed."""

PATIENCE_SECONDS: Final = 10.0
"""So often it is looked whether the reader is catching up."""

LEAST_PACE: Final = 2.0
"""Seconds of records a second: who reads no more does not catch up."""


@dataclass(slots=True)
class _Late:
    """A partition with late records. Times of records are Unix seconds."""

    since: float
    """Monotonic: when it was last looked whether it catches up."""
    reach_then: float = -math.inf
    """Up to when all topics were read then."""
    newest: dict[TopicPartition, float] = field(default_factory=dict)
    """Topic → the time of the newest record of it that was let through last."""
    held_from: dict[TopicPartition, float] = field(default_factory=dict)
    """Topic that waits, and is not fetched → the time of its next record."""
    has_resigned: bool = False
    """It does not catch up: nothing waits until it does."""


class Abreast(Holding[_Late]):
    """Holds back records that were written later than other topics are read."""

    def __init__(self, topics: AbstractSet[str]) -> None:
        """Make it.

        Args:
            topics: names of those that are read abreast, partition by partition.
        """
        super().__init__()
        self._topics = topics

    @classmethod
    def of_crawls(cls, settings: Settings) -> Self:
        """Signals, and the crawls that they were made before or after."""
        return cls({settings.topic(topic.name) for topic in (CRAWL_OUTCOMES, PAGE_SIGNALS)})

    async def hold_back(self, consumer: AIOKafkaConsumer, fetched: Fetched) -> None:
        """Take out of what was read what has to wait; the consumer will read it again.

        To be called after each reading, also where nothing came.
        """
        self._find_late(fetched, time.time() - LATE_SECONDS)
        if not self._parts:
            return
        tps = [TopicPartition(topic, number) for number in self._parts for topic in self._topics]
        try:
            positions = await positions_of(consumer, tps)
            for number in list(self._parts):
                here = [tp for tp in tps if tp.partition == number]
                unread = {tp for tp in here if _goes_on(consumer, tp, positions[tp])}
                self._hold_partition(consumer, fetched, here, unread)
        except IllegalStateError:
            # The partition has just gone to another member: nothing of it is handled.
            return

    def _find_late(self, fetched: Fetched, before: float) -> None:
        for tp, records in fetched.items():
            is_known = tp.partition in self._parts
            if tp.topic in self._topics and not is_known and _time_of(records[0]) < before:
                self._parts[tp.partition] = _Late(time.monotonic())

    def _hold_partition(
        self,
        consumer: AIOKafkaConsumer,
        fetched: Fetched,
        here: list[TopicPartition],
        unread: AbstractSet[TopicPartition],
    ) -> None:
        """Let the topics of one partition go on up to where all of them are read, or little more.

        Args:
            consumer: of all.
            fetched: what was read; what has to wait is taken out.
            here: the topics of the partition.
            unread: those of which there is more than was read.
        """
        late = self._parts[here[0].partition]
        newest = late.newest | {tp: _newest(fetched[tp]) for tp in here if tp in fetched}
        reaches = {
            tp: late.held_from.get(tp, newest.get(tp, -math.inf) if tp in unread else math.inf)
            for tp in here
        }
        reach = min(reaches.values())
        _look_at_pace(late, reach, time.monotonic())
        for tp in here:
            others = min((reaches[other] for other in here if other != tp), default=math.inf)
            limit = math.inf if late.has_resigned else others + SLACK_SECONDS
            if tp in late.held_from and late.held_from[tp] <= limit:
                consumer.resume(tp)
                del late.held_from[tp]
            later = (r for r in fetched.get(tp, ()) if _time_of(r) > limit)
            if (first := next(later, None)) is not None:
                late.held_from[tp] = _time_of(first)
                cut(consumer, fetched, tp, first.offset)
                consumer.pause(tp)
            if tp in fetched:
                late.newest[tp] = _newest(fetched[tp])
        if reach == math.inf and not late.held_from:
            del self._parts[here[0].partition]


def _goes_on(consumer: AIOKafkaConsumer, tp: TopicPartition, position: int) -> bool:
    """Whether there is more to read than was read; true until the broker has said where it ends."""
    end = end_of(consumer, tp)
    return end is None or position < end


def _look_at_pace(late: _Late, reach: float, now: float) -> None:
    """Note, now and then, whether the topics are read faster than time goes by."""
    passed = now - late.since
    if passed < PATIENCE_SECONDS:
        return
    is_faster = reach > late.reach_then and reach - late.reach_then >= LEAST_PACE * passed
    late.since, late.reach_then, late.has_resigned = now, reach, not is_faster


def _time_of(record: ConsumerRecord) -> float:
    """When a record was written, Unix seconds."""
    return float(record.timestamp) / 1000.0


def _newest(records: Sequence[ConsumerRecord]) -> float:
    return max(map(_time_of, records))
