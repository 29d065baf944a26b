"""A worker that reads as a member of a group, and writes what comes of it; ingester, discoverer."""

from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Protocol

from shared.runtime.group_reading import GroupReader
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.runtime.worker import WorkerService


class Handler(Protocol):
    """What batches are handed to."""

    trouble: str | None
    """What it waits for; None: nothing."""

    progressed_at: float
    """When it last tried something, by `time.monotonic`."""


class GroupWorker(WorkerService):
    """Reading is all there is to do; positions are kept in Kafka."""

    reads: str
    """The topic that matters most, for people."""

    _handler: Handler

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._publisher = Publisher(settings)
        self._reader: GroupReader | None = None

    @abstractmethod
    def make_reader(self) -> GroupReader:
        """What reads, not started yet."""

    async def open(self) -> None:
        """Connect, and join the group."""
        await self._publisher.start()
        self._reader = self.make_reader()
        await self._reader.start()

    async def close(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            await self._reader.stop()
        await self._publisher.stop()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Reading."""
        return [self._opened.run(self.stopping)]

    def not_ready(self) -> str | None:
        """Wait for the servers and the group."""
        if self._reader is not None and self._reader.trouble is not None:
            return self._reader.trouble
        if self._handler.trouble is not None:
            return self._handler.trouble
        if self._reader is None or not self._reader.settled:
            return f"waiting for the consumer group to hand out the partitions of `{self.reads}`"
        return None

    def progressed_at(self) -> float:
        """When the reading loop last turned, or something was last tried within a batch."""
        return max(self._opened.progressed_at, self._handler.progressed_at)

    @property
    def _opened(self) -> GroupReader:
        if self._reader is None:
            raise RuntimeError(f"the reader of {self.reads} is not open")
        return self._reader
