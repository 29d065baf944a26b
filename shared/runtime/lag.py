"""How much a group's member has not read yet, told all the time: while it waits, too."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from shared.runtime import metrics

REPORT_SECONDS: Final = 2.0

ANSWER_SECONDS: Final = 2.0
"""A broker that takes longer is not waited for: the last ends that are known count."""

LATE_SECONDS: Final = 60.0
"""A record that is done with later than this is late."""


def late_ones(records: Sequence[ConsumerRecord], now: float) -> int:
    """How many of a partition's records, which are done with now, are late.

    Args:
        records: in order of offset. But for clocks that differ that is the order of their times:
            where the first one is in time, all are taken to be.
        now: Unix seconds, of the machine's clock.
    """
    least = 1000 * (now - LATE_SECONDS)
    if not records or records[0].timestamp >= least:
        return 0
    return sum(record.timestamp < least for record in records)


def end_of(consumer: AIOKafkaConsumer, tp: TopicPartition) -> int | None:
    """Up to where an assigned partition can be read, as the last answer to a fetch said.

    That is where the oldest transaction begins that is not ended yet. None: there was no answer.
    """
    stable: int | None = consumer.last_stable_offset(tp)
    end: int | None = consumer.highwater(tp)
    return end if stable is None or stable < 0 else stable


class Lag:
    """The lag of the partitions that a consumer reads."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        names: Mapping[str, str],
        positions: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        """Make it.

        Args:
            consumer: that reads.
            names: topic on the broker → name in the metrics.
            positions: of the partitions that are read, up to where that is done.
        """
        self._consumer = consumer
        self._names = names
        self._positions = positions
        self._ends: dict[TopicPartition, int] = {}
        metrics.begin(names.values(), metrics.MESSAGES_CONSUMED)
        self.read_at = time.monotonic()
        """When (monotonic) records were asked for last: the answers to it say where topics end."""

    async def run(self) -> None:
        """Report again and again until cancelled."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            await self._update()
            self.report()

    def report(self) -> None:
        """Set the metrics by what is known."""
        behind = dict.fromkeys(self._names.values(), 0)
        for tp, offset in self._positions().items():
            behind[self._names[tp.topic]] += max(self._ends.get(tp, offset) - offset, 0)
        for topic, records in behind.items():
            metrics.CONSUMER_LAG.labels(topic).set(records)

    async def unread(self) -> dict[TopicPartition, int] | None:
        """Where partitions end that are not read up to there; None: the broker does not say so."""
        positions = dict(self._positions())
        ends = await self._asked(positions)
        if ends.keys() != positions.keys():
            return None
        return {tp: end for tp, end in ends.items() if end > positions[tp]}

    async def _update(self) -> None:
        assigned = self._consumer.assignment()
        read = [tp for tp in self._positions() if tp in assigned]
        known = {tp: end for tp in read if (end := end_of(self._consumer, tp)) is not None}
        if time.monotonic() - self.read_at > REPORT_SECONDS:
            # Nothing is fetched any more of partitions whose records wait here.
            known |= await self._asked(read)
        self._ends = {tp: end for tp, end in (self._ends | known).items() if tp in assigned}

    async def _asked(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            ends = self._consumer.end_offsets(list(partitions))
            return dict(await asyncio.wait_for(ends, ANSWER_SECONDS))
        except (KafkaError, IllegalStateError, TimeoutError):
            return {}
