"""From pings to `signals`: a request is answered when the broker has what it said, not before."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from services.receiver import metrics
from services.receiver.accounts import PingAccounts
from services.receiver.refusing import Refused
from shared.contracts.topics import SIGNALS
from shared.runtime.acknowledging import (
    ACKNOWLEDGED_SECONDS,
    Acknowledging,
    NotAcknowledged,
)
from shared.runtime.pings import FEW, KEY_HEADER, Ping, signals_by_place
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL

MOST_WAITING: Final = 200_000
"""Signals that wait for the broker; with more, senders are told to come again."""

MOST_WAITING_BYTES: Final = 128 * 1024 * 1024
"""Of them, as `bytes_of` counts."""

RETRY_SECONDS: Final = 5
_PING_BYTES: Final = 400
"""That a ping and the message that is made of it take besides their texts."""


def bytes_of(pings: Sequence[Ping]) -> int:
    """What pings take in memory, about, with the messages that are made of them."""
    return sum(_PING_BYTES + 2 * (len(ping.url) + len(ping.host)) for ping in pings)


class Sender:
    """Publishes signals, each source with its key where the operator has given it one."""

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        trouble: Callable[[], str | None],
        patience_seconds: float = ACKNOWLEDGED_SECONDS,
    ) -> None:
        """Make it.

        Args:
            settings: of the process.
            publisher: started before the first ping comes.
            trouble: what is wrong with the broker; None: it answers.
            patience_seconds: how long a request waits for the broker.
        """
        self._settings = settings
        self._publisher = publisher
        self._trouble = trouble
        self._acknowledging = Acknowledging(patience_seconds)
        self._waiting = 0
        self._waiting_bytes = 0
        self.accounts = PingAccounts()
        """What the broker has of each source."""

    async def send(self, source: str, pings: Sequence[Ping]) -> None:
        """Publish; when this returns the broker has all of them.

        Raises:
            Refused: the broker has not acknowledged them, so they must be sent again.
        """
        if not pings:
            return
        if (trouble := self._trouble()) is not None:
            raise Refused(503, f"nothing can be stored now: {trouble}", RETRY_SECONDS)
        size = bytes_of(pings)
        if (
            self._waiting + len(pings) > MOST_WAITING
            or self._waiting_bytes + size > MOST_WAITING_BYTES
        ):
            raise Refused(503, "the broker is behind", RETRY_SECONDS)
        try:
            await self._acknowledging.wait_for(self._send(source, pings, size))
        except NotAcknowledged as error:
            raise Refused(503, str(error), RETRY_SECONDS) from error

    def take_settings(self, settings: Settings) -> None:
        """Send with the keys of other settings."""
        self._settings = settings

    async def stop(self) -> None:
        """Wait for what is under way."""
        await self._acknowledging.stop()

    async def _send(self, source: str, pings: Sequence[Ping], size: int) -> None:
        self._count(len(pings), size)
        arrived_at = WALL.now()
        try:
            await self._publish(source, pings)
        finally:
            self._count(-len(pings), -size)
        metrics.SIGNALS.labels(source).inc(len(pings))
        self.accounts.published(source, pings, arrived_at)

    def _count(self, change: int, size: int) -> None:
        self._waiting += change
        self._waiting_bytes += size
        metrics.WAITING.set(self._waiting)

    async def _publish(self, source: str, pings: Sequence[Ping]) -> None:
        messages = await signals_by_place(self._publisher, source, pings)
        key = self._settings.signal_source_keys.get(source)
        headers = [(KEY_HEADER, key.get_secret_value().encode())] if key is not None else []
        if len(pings) <= FEW:
            # One by one, gathered with those of others; more make batches of their own.
            stored = [
                await self._publisher.send(
                    SIGNALS, key_, value, partition=partition, headers=headers
                )
                for (_, partition), part in messages.items()
                for key_, value in part
            ]
            await asyncio.gather(*stored)
            return
        await self._publisher.send_batches(messages, headers)
