"""To the broker: whatever is accepted is stored before its sender is told so."""

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from services.frontier import metrics
from services.frontier.refusing import NotStored
from shared.contracts.topics import Topic
from shared.runtime.acknowledging import (
    ACKNOWLEDGED_SECONDS,
    Acknowledging,
    NotAcknowledged,
)
from shared.runtime.publisher import Publisher

MOST_WAITING: Final = 100_000
"""Messages that wait for the broker; with more, senders are told to come again."""


class Sender:
    """Publishes messages about hosts, one by one."""

    def __init__(
        self,
        publisher: Publisher,
        trouble: Callable[[], str | None],
        patience_seconds: float = ACKNOWLEDGED_SECONDS,
    ) -> None:
        """Make it.

        Args:
            publisher: started before the first message comes.
            trouble: what is wrong with the broker; None: it answers.
            patience_seconds: how long a message waits for the broker.
        """
        self._publisher = publisher
        self._trouble = trouble
        self._acknowledging = Acknowledging(patience_seconds)

    async def send(self, topic: Topic, host: str, message: Struct) -> None:
        """Publish; when this returns the broker has it.

        Raises:
            NotStored: it has not, or not said so; sending it twice does no harm.
        """
        if (trouble := self._trouble()) is not None:
            raise NotStored(trouble)
        if len(self._acknowledging) >= MOST_WAITING:
            raise NotStored("the broker is behind")
        try:
            await self._acknowledging.wait_for(self._send(topic, host, message))
        except NotAcknowledged as error:
            raise NotStored(str(error)) from error

    async def stop(self) -> None:
        """Wait for what is under way."""
        await self._acknowledging.stop()

    async def _send(self, topic: Topic, host: str, message: Struct) -> None:
        began = time.perf_counter()
        await (await self._publisher.send_for_host(topic, host, message))
        metrics.STORE_SECONDS.observe(time.perf_counter() - began)
