"""Discovered URLs become pages, where the operator wants that and nobody knows them yet."""

import asyncio
from collections import OrderedDict
from typing import Final, Literal

import psycopg

from services.frontier import metrics
from services.frontier.refusing import NotStored
from services.frontier.sending import Sender
from services.frontier.warning import Once
from shared.contracts.identity import BadUrl, PageIdentity, identify, is_private_host
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.clock import Clock
from shared.runtime.settings import Settings
from shared.store.page_listing import find_known

Became = Literal["added", "known", "refused", "off", "failed"]

MOST_REMEMBERED: Final = 200_000
"""Pages that are known to be known; links lead to the same ones again and again."""

GATHER_SECONDS: Final = 0.02
"""So long questions about pages are gathered before the database is asked."""


class KnownPages:
    """Whether pages are known, asked for many at a time."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._known: OrderedDict[int, None] = OrderedDict()
        self._asked: dict[PageIdentity, asyncio.Future[bool]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def has(self, page: PageIdentity) -> bool:
        """Whether a page is known, be it removed or gone.

        Raises:
            psycopg.Error: the database cannot be asked.
        """
        if page.page_id in self._known:
            return True
        if page not in self._asked:
            self._asked[page] = asyncio.get_running_loop().create_future()
        waiting = self._asked[page]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(waiting)

    def add(self, page_id: int) -> None:
        """Note that a page is known now."""
        self._known[page_id] = None
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    async def _ask(self) -> None:
        while self._asked:
            await asyncio.sleep(GATHER_SECONDS)
            asked, self._asked = self._asked, {}
            try:
                found = await asyncio.to_thread(find_known, self._database_url, list(asked))
            except (psycopg.Error, OSError) as error:
                for answer in asked.values():
                    answer.set_exception(error)
                    answer.exception()  # seen, even where nobody waits for it any more
                continue
            for page_id in found:
                self.add(page_id)
            for page, answer in asked.items():
                answer.set_result(page.page_id in found)


class Discoveries:
    """Publishes pages that are new."""

    def __init__(self, settings: Settings, sender: Sender, clock: Clock) -> None:
        self._is_on = settings.frontier_discoveries
        self._allow_private = settings.allow_private_hosts
        self._sender = sender
        self._clock = clock
        self._known = KnownPages(settings.database_url.get_secret_value())
        self._once = Once()

    async def take(self, url: str) -> Became:
        """See to one URL; `failed`: it may be sent again, all else is final."""
        became = await self._take(url)
        metrics.DISCOVERED.labels(became).inc()
        return became

    async def _take(self, url: str) -> Became:
        if not self._is_on:
            self._once.warn(
                "discovered URLs are skipped: FRESHET_FRONTIER_DISCOVERIES=true makes pages of them"
            )
            return "off"
        page = self._page(url)
        if page is None:
            return "refused"
        try:
            if await self._known.has(page):
                return "known"
            # Without importance and bounds: those of a page that is known meanwhile stay.
            update = PageUpdate("upsert", page.url, updated_at=self._clock.now())
            await self._sender.send(PAGE_UPDATES, page.host, update)
        except (psycopg.Error, OSError) as error:
            self._once.warn("the database cannot be asked", reason=str(error).strip())
            return "failed"
        except NotStored:
            return "failed"
        self._known.add(page.page_id)
        return "added"

    def _page(self, url: str) -> PageIdentity | None:
        """The page of a URL; None: it is not to be crawled."""
        try:
            page = identify(url)
        except BadUrl:
            return None
        return page if self._allow_private or not is_private_host(page.host) else None
