"""The discoverer's process."""

from collections.abc import Coroutine
from typing import Any, Final

from services.discoverer.handler import DiscoveryHandler
from shared.contracts.topics import CRAWL_OUTCOMES, DISCOVERIES, Topic
from shared.discovery.admission import Admission
from shared.discovery.rules import DiscoveryRules
from shared.runtime.group_reading import GroupReader
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.worker import WorkerService, make_app, run_app
from shared.store.questions import Questions
from shared.store.what_is_known import WhatIsKnown

NAME = "discoverer"

GROUP: Final = "freshet-discoverer"

TOPICS: Final[tuple[Topic, ...]] = (DISCOVERIES, CRAWL_OUTCOMES)

GATHERED_SECONDS: Final = 0.25
"""A new page can wait so long, and a batch asks the database."""


class Discoverer(WorkerService):
    """Reads `discoveries`, and where `crawl-outcomes` lead; writes `page-updates`."""

    database_user = NAME

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._publisher = Publisher(settings)
        self._questions = Questions(settings.database_url.get_secret_value(), NAME)
        self._admission = Admission(DiscoveryRules.of(settings), WhatIsKnown(self._questions))
        self._handler = DiscoveryHandler(settings, self.clock, self._publisher, self._admission)
        self._reader: GroupReader | None = None

    async def open(self) -> None:
        """Connect, and join the group."""
        await self._publisher.start()
        topics = TOPICS if self.settings.discovery_redirects else (DISCOVERIES,)
        self._reader = GroupReader(
            self.settings, GROUP, topics, self._handler.handle, GATHERED_SECONDS
        )
        await self._reader.start()

    async def close(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            await self._reader.stop()
        self._questions.stop()
        await self._publisher.stop()

    def take_settings(self, settings: Settings) -> None:
        """The rules of links."""
        super().take_settings(settings)
        self._admission.go_by(DiscoveryRules.of(settings))

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Reading is all there is to do."""
        return [self._opened.run(self.stopping)]

    def not_ready(self) -> str | None:
        """Wait for both servers and the group."""
        if self._reader is not None and self._reader.halted is not None:
            return self._reader.halted
        if self._handler.trouble is not None:
            return self._handler.trouble
        if self._reader is None or not self._reader.settled:
            return "waiting for the consumer group to hand out the partitions of `discoveries`"
        return None

    def progressed_at(self) -> float:
        """Wall time of the reading loop's last turn, or of the last sign of life in a batch."""
        return max(self._opened.progressed_at, self._handler.progressed_at)

    @property
    def _opened(self) -> GroupReader:
        if self._reader is None:
            raise RuntimeError("the discoverer is not open")
        return self._reader


def main() -> None:
    """Run the discoverer until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Discoverer(settings)), settings)
