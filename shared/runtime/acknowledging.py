"""Whoever hands something in is told that it is stored once the broker has it, and not before."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from aiokafka.errors import KafkaError

ACKNOWLEDGED_SECONDS: Final = 10.0
"""A broker that takes longer has its senders told to come again."""

STOP_SECONDS: Final = 2.0
"""What is under way at the stop has so long; nobody has been told that it is stored."""


class NotAcknowledged(Exception):
    """The broker has it not, or has not said so; the text says why."""


class Acknowledging:
    """What was handed to the producer, each waited for to its end.

    It cannot be taken back, even if its sender has gone away meanwhile.
    """

    def __init__(self, patience_seconds: float = ACKNOWLEDGED_SECONDS) -> None:
        """Wait for nothing yet.

        Args:
            patience_seconds: how long a sender is let wait.
        """
        self._patience_seconds = patience_seconds
        self._under_way: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    async def wait_for(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send; when this returns the broker has it.

        Raises:
            NotAcknowledged: it may have it all the same, now or later.
        """
        task = asyncio.ensure_future(sending)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait_for(asyncio.shield(task), self._patience_seconds)
        except TimeoutError as error:
            raise NotAcknowledged("the broker has not acknowledged in time") from error
        except (KafkaError, OSError) as error:
            raise NotAcknowledged(f"the broker cannot be written: {error!r}") from error

    async def stop(self) -> None:
        """Wait for what is under way, for a while."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=STOP_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Seen, even where nobody waits for it any more.
            task.exception()
