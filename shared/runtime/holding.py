"""Holding back records that were read, until others are: they are read again then."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError

from shared.runtime.slices import Fetched, position_of

T = TypeVar("T")


class Holding(ABC, Generic[T]):
    """Something that holds back."""

    def __init__(self) -> None:
        self._parts: dict[int, T] = {}
        """Partition → what is known of what waits there."""

    @abstractmethod
    async def hold_back(self, consumer: AIOKafkaConsumer, fetched: Fetched) -> None:
        """Take out of what was read what has to wait; the consumer will read it again.

        To be called after each reading, also where nothing came.
        """

    def forget(self, partitions: AbstractSet[int] | None = None) -> None:
        """Partitions come and go: what waited is read again, once its reader resumes it.

        Args:
            partitions: which; None: all.
        """
        for partition in list(self._parts) if partitions is None else partitions:
            self._parts.pop(partition, None)


async def positions_of(
    consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """How far partitions are read.

    Raises:
        IllegalStateError: one of them has just gone to another member, or has just come back.
    """
    found = {}
    for tp in partitions:
        position = await position_of(consumer, tp)
        if position is None:
            raise IllegalStateError(f"{tp} is being handed out")
        found[tp] = position
    return found


def cut(consumer: AIOKafkaConsumer, fetched: Fetched, tp: TopicPartition, until: int) -> None:
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
