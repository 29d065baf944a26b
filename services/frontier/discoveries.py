"""Discovered URLs become pages, where the operator wants that and nobody knows them yet.

By the rules of `shared.discovery`, as discoverers do it; but each URL is answered by itself.
"""

import asyncio
import time
from typing import Final, Literal

import psycopg

from services.frontier import metrics
from services.frontier.refusing import NotStored
from services.frontier.sending import Sender
from services.frontier.warning import Once
from shared.contracts.topics import PAGE_UPDATES
from shared.discovery.admission import Admission, Judged, Link
from shared.discovery.rules import DiscoveryRules
from shared.discovery.updates import found_page
from shared.runtime.clock import Clock
from shared.runtime.databases import databases_of
from shared.runtime.settings import Settings
from shared.store.questions import SharedQuestions
from shared.store.what_is_known import WhatIsKnown

Became = Literal["added", "known", "refused", "off", "failed"]

GATHER_SECONDS: Final = 0.02
"""So long URLs are gathered before they are judged together."""


class _Gathering:
    """Has URLs judged, many at a time."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._asked: dict[Link, asyncio.Future[Judged]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def judge(self, link: Link) -> Judged:
        """What becomes of one.

        Raises:
            psycopg.Error: the database cannot be asked.
        """
        if link not in self._asked:
            self._asked[link] = asyncio.get_running_loop().create_future()
        waiting = self._asked[link]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(waiting)

    async def _ask(self) -> None:
        while self._asked:
            await asyncio.sleep(GATHER_SECONDS)
            asked, self._asked = self._asked, {}
            try:
                judged = await self._admission.judge(list(asked), time.monotonic())
            except Exception as error:
                # Whatever it is: nobody would answer those who wait, and they hold their streams.
                for answer in asked.values():
                    answer.set_exception(error)
                    answer.exception()  # seen, even where nobody waits for it any more
                continue
            for answer, was in zip(asked.values(), judged, strict=True):
                answer.set_result(was)


class Discoveries:
    """Publishes pages that are new."""

    def __init__(self, settings: Settings, sender: Sender, clock: Clock) -> None:
        self._is_on = settings.frontier_discoveries
        self._sender = sender
        self._clock = clock
        self._questions = SharedQuestions(databases_of(settings), "frontier")
        self._admission = Admission(DiscoveryRules.of(settings), WhatIsKnown(self._questions))
        self._gathering = _Gathering(self._admission)
        self._once = Once()

    async def take(self, url: str, depth: int | None) -> Became:
        """See to one URL; `failed`: it may be sent again, all else is final.

        Args:
            url: as it was found.
            depth: its own, in links from where the crawl began; None: not known.
        """
        became = await self._take(url, depth)
        metrics.DISCOVERED.labels(became).inc()
        return became

    def take_settings(self, settings: Settings) -> None:
        """Go by other rules, from the next URLs on."""
        self._admission.go_by(DiscoveryRules.of(settings))

    def stop(self) -> None:
        """Ask nothing more."""
        self._questions.stop()

    async def _take(self, url: str, depth: int | None) -> Became:
        if not self._is_on:
            self._once.warn(
                "discovered URLs are skipped: FRESHET_FRONTIER_DISCOVERIES=true makes pages of them"
            )
            return "off"
        found_at = self._clock.now()
        try:
            judged = await self._gathering.judge(Link(url, depth, found_at))
            if judged.became == "known":
                return "known"
            if judged.became != "new" or judged.page is None:
                return "refused"
            page = judged.page
            update = found_page(page, found_at, self._admission.said_of(page))
            await self._sender.send(PAGE_UPDATES, page.host, update)
        except (psycopg.Error, OSError) as error:
            self._once.warn("the database cannot be asked", reason=str(error).strip())
            return "failed"
        except NotStored:
            return "failed"
        self._admission.remember([page], time.monotonic())
        return "added"
