"""What a handler is told of its topics beyond their records."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.runtime.batches import Reached
from shared.runtime.lag import Lag
from shared.runtime.membership import Membership
from shared.runtime.slices import passed_over

PASSED_OVER_SECONDS: Final = 0.5

AGAIN_SECONDS: Final = 0.1


class Telling:
    """Tells it; names are as in `Lag`."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        names: Mapping[str, str],
        lag: Lag,
        reached: Reached | None,
        unread: Reached | None,
    ) -> None:
        """Make it.

        Args:
            consumer: that reads.
            names: topic on the broker → name for the handler.
            lag: knows where topics end.
            reached: told positions that were reached without a record; None: nobody is.
            unread: told where topics end beyond what is handled; None: nobody is.
        """
        self._consumer, self._names, self._lag = consumer, names, lag
        self._reached, self._unread = reached, unread
        self._looked_at = -PASSED_OVER_SECONDS

    async def passed_over(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Positions that were reached without a record; looked for now and then.

        Args:
            positions: up to where all is handled. None while the group decides: what was loaded
                just then is not read from there yet, but from where it was before.
        """
        if time.monotonic() < self._looked_at + PASSED_OVER_SECONDS:
            return {}
        self._looked_at = time.monotonic()
        return await passed_over(self._consumer, positions)

    async def reached(self, positions: Mapping[TopicPartition, int]) -> None:
        """All before these is handled, or gone."""
        if self._reached is not None:
            await self._reached(self._named(positions))

    async def unread(self) -> bool:
        """Whether the handler knows what it has to read; if not, it is to be tried again."""
        if self._unread is None:
            return True
        unread = await self._lag.unread()
        if unread is None:
            await asyncio.sleep(AGAIN_SECONDS)
            return False
        await self._unread(self._named(unread))
        return True

    async def catch_up(self, membership: Membership) -> None:
        """Once the broker answers again, tell what it has that is not read.

        It may have been written just before it went away, and read by nobody.
        """
        if membership.is_sure and membership.was_unsure and await self.unread():
            membership.was_unsure = False

    def _named(self, offsets: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
        return {(self._names[tp.topic], tp.partition): offset for tp, offset in offsets.items()}
