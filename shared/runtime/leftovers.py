"""Partitions that could not be handled yet, or loaded, while others could."""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.runtime.batches import Absent, Positions
from shared.runtime.holding import Holding

PAUSE_SECONDS: Final = 5.0
"""After so long their records are handed over again. Each time costs the others a moment."""


class Leftovers:
    """Has records read again, after a while."""

    def __init__(self, consumer: AIOKafkaConsumer, holding: Sequence[Holding[Any]]) -> None:
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


class Loading(NamedTuple):
    """Partitions that a handler loads."""

    partitions: set[int]
    positions: "asyncio.Future[Positions]"


class Missing:
    """Partitions of this member that could not be loaded, and when they are tried again."""

    def __init__(self, absent: Absent | None) -> None:
        """Make it.

        Args:
            absent: asked which could not be; None: all can.
        """
        self._absent = absent
        self._due_at: dict[int, float] = {}

    @property
    def partitions(self) -> AbstractSet[int]:
        """Which they are."""
        return self._due_at.keys()

    def left_of(self, assigned: AbstractSet[int]) -> set[int]:
        """Those of partitions that were to be loaded just now which are; the others are missing."""
        absent = set(self._absent()) & assigned if self._absent is not None else set()
        self.forget(assigned)
        self.put_off(absent)
        return set(assigned) - absent

    def put_off(self, partitions: Iterable[int]) -> None:
        """These cannot be loaded now."""
        self._due_at |= dict.fromkeys(partitions, time.monotonic() + PAUSE_SECONDS)

    def forget(self, partitions: Iterable[int]) -> None:
        """Partitions go elsewhere, or are loaded."""
        for partition in partitions:
            self._due_at.pop(partition, None)

    def due(self) -> set[int]:
        """All of them, if it is time for one."""
        is_time = any(at <= time.monotonic() for at in self._due_at.values())
        return set(self._due_at) if is_time else set()
