"""Partitions whose records could not be handled yet, while those of others could."""

import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.runtime.holding import Holding

PAUSE_SECONDS: Final = 5.0
"""After so long their records are handed over again. Each time costs the others a moment."""


class Leftovers:
    """Has records read again, after a while."""

    def __init__(self, consumer: AIOKafkaConsumer, holding: Sequence[Holding]) -> None:
        self._consumer = consumer
        self._holding = holding
        self._due_at: dict[int, float] = {}

    def put_back(
        self, partitions: Collection[int], positions: Mapping[TopicPartition, int]
    ) -> None:
        """Records of these were handed over in vain: they are read again from where they begin."""
        if not partitions:
            return
        # What holds back knows how far topics were read, and they are not read so far any more.
        for holding in self._holding:
            holding.forget(set(partitions))
        self._due_at |= dict.fromkeys(partitions, time.monotonic() + PAUSE_SECONDS)
        there = [tp for tp in self._consumer.assignment() if tp.partition in partitions]
        for tp in there:
            self._consumer.seek(tp, positions[tp])
        self._consumer.pause(*there)

    def resume(self, ours: AbstractSet[int]) -> None:
        """Read on with those for which it is time, if they are still ours."""
        due = {partition for partition, at in self._due_at.items() if at <= time.monotonic()}
        for partition in due:
            del self._due_at[partition]
        assigned = self._consumer.assignment()
        self._consumer.resume(*(tp for tp in assigned if tp.partition in due & ours))
