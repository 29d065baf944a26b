"""The poller's process."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog

from services.poller import metrics
from services.poller.cursors import Cursors
from services.poller.reading import StreamReader
from services.poller.sites.polling import SitePoller
from services.poller.sites.prices import Prices
from services.poller.streams import streams_of
from shared.contracts.identity import PageIdentity
from shared.contracts.topics import PAGE_UPDATES
from shared.discovery.updates import updates_by_place
from shared.runtime.databases import databases_of
from shared.runtime.fetching import Fetcher
from shared.runtime.kafka import may_pass
from shared.runtime.pings import KEY_HEADER, Ping, signals_by_place
from shared.runtime.publisher import Publisher
from shared.runtime.retrying import until_it_passes
from shared.runtime.settings import Settings, load_settings
from shared.runtime.stopping import until_stopped
from shared.runtime.wall_time import WALL
from shared.runtime.worker import WorkerService, make_app, run_app
from shared.store.questions import SharedQuestions

log = structlog.get_logger(__name__)

NAME = "poller"
BEAT_SECONDS: Final = 1.0


class Poller(WorkerService):
    """Reads streams of events, sitemaps and feeds; writes `signals` and `page-updates`."""

    database_user = NAME

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._publisher = Publisher(settings)
        self._questions = SharedQuestions(databases_of(settings), NAME)
        cursors, prices = Cursors(self._questions.home), Prices(settings, self._questions)
        self._readers = [
            StreamReader(
                stream,
                cursors,
                prices,
                self.publish,
                settings.poller_reconnect_seconds,
                settings.poller_user_agent,
            )
            for stream in streams_of(settings)
        ]
        self._fetcher = Fetcher(
            allow_private=settings.allow_private_hosts,
            seconds=settings.poller_fetch_seconds,
            user_agent=settings.poller_user_agent,
        )
        self._sites = SitePoller(settings, self._fetcher, self)
        self._is_open = False
        self._beat_at = time.monotonic()

    async def open(self) -> None:
        """Connect."""
        await self._publisher.start()
        await self._fetcher.start()
        self._is_open = True

    async def close(self) -> None:
        """Disconnect."""
        self._is_open = False
        self._sites.stop()
        self._questions.stop()
        await self._fetcher.stop()
        await self._publisher.stop()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """One for each stream, and one for all sites."""
        return [
            self._beat(),
            until_stopped(self.stopping, self._sites.run()),
            # What is cut off is read again.
            *(until_stopped(self.stopping, reader.run()) for reader in self._readers),
        ]

    async def _beat(self) -> None:
        while not self.stopping.is_set():
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    async def publish(self, source: str, pings: Sequence[Ping], shown_as: str = "") -> None:
        """Publish; when this returns the broker has them. Waits for it."""
        if not pings:
            return
        key = self.settings.signal_source_keys.get(source)
        headers = [(KEY_HEADER, key.get_secret_value().encode())] if key is not None else []
        async for attempt in until_it_passes(None, may_pass, _note):
            with attempt:
                messages = await signals_by_place(self._publisher, source, pings)
                await self._publisher.send_batches(messages, headers)
        metrics.SIGNALS.labels(shown_as or source).inc(len(pings))

    async def publish_pages(self, pages: Sequence[PageIdentity]) -> None:
        """Publish new pages; when this returns the broker has them. Waits for it."""
        if not pages:
            return
        async for attempt in until_it_passes(None, may_pass, _note):
            with attempt:
                shards = await self._publisher.partitions_of(PAGE_UPDATES)
                now = WALL.now()
                found = [(page, now) for page in pages]
                messages = await asyncio.to_thread(updates_by_place, found, shards)
                await self._publisher.send_batches(messages)
        metrics.PAGES.inc(len(pages))

    def not_ready(self) -> str | None:
        """Wait for the broker."""
        return None if self._is_open else "it is not connected yet"

    def progressed_at(self) -> float:
        """Wall time of the loop's last turn."""
        return self._beat_at


def _note(error: BaseException) -> None:
    log.warning("what was read waits for the broker", error=repr(error))


def main() -> None:
    """Run the poller until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Poller(settings)), settings)
