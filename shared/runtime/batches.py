"""What a worker is handed of the busy topics, and what it answers."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from aiokafka import ConsumerRecord

Batch = dict[str, dict[int, list[ConsumerRecord]]]
"""Topic (without prefix) → partition → records in order of offset."""

Positions = Mapping[tuple[str, int], int]
"""(topic, partition) → next offset to read. Missing: the topic's beginning."""


class BatchHandler(Protocol):
    """What a worker does with its partitions and their records.

    All calls come from one task, one after the other, so a handler needs no lock against itself;
    but with `loads_beside`, `assigned` may run beside `handle`, and beside `revoked` for other
    partitions. It is cancelled where the group decides otherwise, and `revoked` follows for its
    partitions, whatever of them was loaded.
    """

    async def assigned(self, partitions: set[int]) -> Positions:
        """These partitions are ours now: load what is needed, and say where to start reading.

        Some may have to be left out (see `Absent`).
        """
        ...

    async def revoked(self, partitions: set[int]) -> None:
        """These partitions are no longer ours: forget them. Effects must be durable by now."""
        ...

    async def handle(self, batch: Batch) -> Collection[int] | None:
        """Apply a batch and make its effects durable, with its positions where they matter.

        Returns:
            partitions whose records could not be applied yet; they are handed over again, while the
            others go on. None: all are done.

        An exception ends the worker, which starts again from the last durable positions; but
        `TooManyBadMessages` makes it stand still before the batch, for people to look at.
        """
        ...


Reached = Callable[[Positions], Awaitable[None]]

Absent = Callable[[], Collection[int]]
"""Which of the partitions that were assigned could not be loaded: they are assigned again, after a
while, and the others go on."""

WrittenOut = Callable[[], Awaitable[bool]]
"""Whether the brokers have all that was made of partitions that were revoked; waits a moment."""
