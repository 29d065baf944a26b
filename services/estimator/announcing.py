"""What the estimator publishes: learned parameters, and dead letters."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.estimator.decoding import Refused
from shared.runtime.publisher import Publisher

STAGE = "estimator"

Announcements = Mapping[tuple[str, int], Sequence[tuple[bytes, bytes]]]
"""(Topic without prefix, shard) → keys and values."""


class Announcer(Protocol):
    """Where a batch's messages go."""

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Publish, and wait until the broker has everything.

        Returns:
            (topic, shard) → offset after its last announcement.
        """
        ...


class KafkaAnnouncer:
    """Publishes on Kafka."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(
        self, announcements: Announcements, refused: Sequence[Refused]
    ) -> dict[tuple[str, int], int]:
        """Publish, and wait until the broker has everything.

        Returns:
            (topic, shard) → offset after its last announcement.

        Raises:
            KafkaError: something could not be delivered.
        """
        for letter in refused:
            await self._publisher.dead_letter(letter.record, STAGE, letter.reason)
        ends = await self._publisher.send_batches(announcements)
        if refused:
            await self._publisher.flush()
        return ends
