"""The ingester's process."""

from collections.abc import Coroutine
from typing import Any

from services.ingester.handler import SignalHandler
from services.ingester.reading import SignalReader
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.worker import WorkerService, make_app, run_app

NAME = "ingester"


class Ingester(WorkerService):
    """Reads `signals`, writes `page-signals`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._publisher = Publisher(settings)
        self._handler = SignalHandler(settings, self.clock, self._publisher)
        self._reader: SignalReader | None = None

    async def open(self) -> None:
        """Connect, and join the group."""
        await self._publisher.start()
        self._reader = SignalReader(self.settings, self._handler.handle)
        await self._reader.start()

    async def close(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            await self._reader.stop()
        await self._publisher.stop()

    def take_settings(self, settings: Settings) -> None:
        """Sources, their keys and limits."""
        super().take_settings(settings)
        self._handler.take_settings(settings)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Reading is all there is to do."""
        return [self._opened.run(self.stopping)]

    def not_ready(self) -> str | None:
        """Wait for the broker and the group."""
        if self._reader is not None and self._reader.halted is not None:
            return self._reader.halted
        if self._handler.trouble is not None:
            return self._handler.trouble
        if self._reader is None or not self._reader.settled:
            return "waiting for the consumer group to hand out the partitions of `signals`"
        return None

    def progressed_at(self) -> float:
        """Wall time of the reading loop's last turn, or of the last attempt within a batch."""
        return max(self._opened.progressed_at, self._handler.progressed_at)

    @property
    def _opened(self) -> SignalReader:
        if self._reader is None:
            raise RuntimeError("the ingester is not open")
        return self._reader


def main() -> None:
    """Run the ingester until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Ingester(settings)), settings)
