"""Publishes the world's signals when their time has come."""

from services.world.events import EventStream, Signals
from services.world.pages import WorldPages
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import Signal
from shared.contracts.topics import SIGNALS
from shared.runtime.publisher import ByPlace, Publisher
from shared.units import SECONDS_PER_DAY

TURN_SECONDS = 0.05
"""Every turn writes a batch to each partition, and is read by three others."""


class Pinger:
    """All web-ping producers of the world in one."""

    def __init__(
        self, publisher: Publisher, pages: WorldPages, stream: EventStream, origin: float
    ) -> None:
        self._publisher = publisher
        self._pages = pages
        self._stream = stream
        self._origin = origin
        self._sources = stream.source_names

    async def publish(self, day: float) -> None:
        """Send the signals up to and with a day."""
        signals = self._stream.signals(day)
        if len(signals):
            await self._publisher.queue_batches(self._messages(signals))

    def _messages(self, signals: Signals) -> ByPlace:
        partitions = self._publisher.settings.partitions
        messages: ByPlace = {}
        urls, hosts = self._pages.names(signals.pages)
        times = self._origin + signals.days * SECONDS_PER_DAY
        sources = [self._sources[source] for source in signals.sources.tolist()]
        for url, host, source, time in zip(urls, hosts, sources, times.tolist(), strict=True):
            place = (SIGNALS.name, shard_of(host, partitions))
            message = (host.encode(), encode(Signal(url, source, time)))
            messages.setdefault(place, []).append(message)
        return messages
