"""Publishes the world's signals when their time has come."""

import asyncio

from services.world.batches import Record, send_batches
from services.world.events import EventStream, Signals
from services.world.pages import WorldPages
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import Signal
from shared.contracts.topics import SIGNALS
from shared.runtime.clock import SECONDS_PER_DAY
from shared.runtime.publisher import Publisher

TURN_SECONDS = 0.02


class Pinger:
    """All web-ping producers of the world in one."""

    def __init__(
        self, publisher: Publisher, pages: WorldPages, stream: EventStream, origin: float
    ) -> None:
        self.sent = 0
        self._publisher = publisher
        self._pages = pages
        self._stream = stream
        self._origin = origin
        self._sources = stream.source_names

    async def publish(self, day: float) -> None:
        """Send the signals up to and with a day."""
        signals = self._stream.signals(day)
        if len(signals):
            await send_batches(self._publisher, SIGNALS, self._records(signals))
            self.sent += len(signals)

    async def close(self) -> None:
        """Wait until the broker has all of them."""
        await asyncio.shield(self._publisher.flush())

    def _records(self, signals: Signals) -> dict[int, list[Record]]:
        partitions = self._publisher.settings.partitions
        records: dict[int, list[Record]] = {}
        for day, page, source in zip(
            signals.days.tolist(), signals.pages.tolist(), signals.sources.tolist(), strict=True
        ):
            host = self._pages.hosts[page]
            message = Signal(
                url=self._pages.urls[page],
                source=self._sources[source],
                observed_at=self._origin + day * SECONDS_PER_DAY,
            )
            record = (host.encode(), encode(message))
            records.setdefault(shard_of(host, partitions), []).append(record)
        return records
