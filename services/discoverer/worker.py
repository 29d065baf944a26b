"""The discoverer's process."""

from typing import Final

from services.discoverer.handler import DiscoveryHandler
from shared.contracts.topics import CRAWL_OUTCOMES, DISCOVERIES, Topic
from shared.discovery.admission import Admission
from shared.discovery.rules import DiscoveryRules
from shared.runtime.databases import databases_of
from shared.runtime.group_reading import GroupReader
from shared.runtime.group_worker import GroupWorker
from shared.runtime.settings import Settings, load_settings
from shared.runtime.worker import make_app, run_app
from shared.store.questions import SharedQuestions
from shared.store.what_is_known import WhatIsKnown

NAME = "discoverer"

GROUP: Final = "freshet-discoverer"

TOPICS: Final[tuple[Topic, ...]] = (DISCOVERIES, CRAWL_OUTCOMES)

GATHERED_SECONDS: Final = 0.25
"""A new page can wait so long, and a batch asks the database."""


class Discoverer(GroupWorker):
    """Reads `discoveries`, and where `crawl-outcomes` lead; writes `page-updates`."""

    database_user = NAME
    reads = DISCOVERIES.name

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._questions = SharedQuestions(databases_of(settings), NAME)
        self._admission = Admission(DiscoveryRules.of(settings), WhatIsKnown(self._questions))
        self._handler: DiscoveryHandler = DiscoveryHandler(
            settings, self.clock, self._publisher, self._admission
        )

    def make_reader(self) -> GroupReader:
        """Of `discoveries`, and of outcomes where redirects count."""
        topics = TOPICS if self.settings.discovery_redirects else (DISCOVERIES,)
        return GroupReader(self.settings, GROUP, topics, self._handler.handle, GATHERED_SECONDS)

    async def close(self) -> None:
        """Disconnect."""
        await super().close()
        self._questions.stop()

    def take_settings(self, settings: Settings) -> None:
        """The rules of links."""
        super().take_settings(settings)
        self._admission.go_by(DiscoveryRules.of(settings))


def main() -> None:
    """Run the discoverer until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Discoverer(settings)), settings)
