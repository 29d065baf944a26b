"""Between the engine and the spider: requests come from Freshet, answers wait for the spider."""

import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Self

from msgspec.structs import replace
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from twisted.python.failure import Failure

from scrapy_freshet.content import digest_of
from scrapy_freshet.fleet import Fleet, fleet_of
from scrapy_freshet.links import links_of
from scrapy_freshet.messages import MOST_DIGEST_CHARACTERS, CrawlOutcome, CrawlRequest
from scrapy_freshet.moving import is_same_page, joined, moved_to, target_of
from scrapy_freshet.outcomes import redirected
from scrapy_freshet.robots import FORBIDDEN, agent_of

ID_KEY = "freshet_request_id"
"""Of a request's `meta`: which of Freshet's requests it fulfils."""

URL_KEY = "freshet_url"
"""Of a request's `meta`: the page as Freshet names it, whatever redirects led to."""

DIGEST_KEY = "freshet_digest"
"""Of a response's `meta`: the spider's own digest of what matters in the page."""

CANONICAL_KEY = "freshet_canonical_url"
"""Of a response's `meta`: the URL that the page says is the one to keep."""

log = logging.getLogger(__name__)


class FleetMiddleware:
    """Gives the spider Freshet's requests, and answers each when the spider is done with it."""

    def __init__(self, crawler: Crawler, fleet: Fleet) -> None:
        self._crawler = crawler
        self._fleet = fleet
        self._agent = agent_of(crawler.settings)
        self._left_out = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's way to make one."""
        middleware = cls(crawler, fleet_of(crawler))
        connect = crawler.signals.connect
        connect(middleware.item_done, signals.item_scraped)
        connect(middleware.item_done, signals.item_dropped)
        connect(middleware.item_failed, signals.item_error)
        connect(middleware.spider_closed, signals.spider_closed)
        return middleware

    async def process_start(self, _start: AsyncIterator[Any]) -> AsyncIterator[Request]:
        """Freshet's requests, for as long as the spider runs, in place of the spider's own."""
        await self._fleet.start()
        async for request in self._fleet.requests(self._engine_has_room):
            try:
                crawl = self._request(request)
            except ValueError as error:  # no URL that Scrapy can ask for
                log.warning("cannot ask for %s: %s", request.url, error)
                self._fleet.fail(request.request_id)
            else:
                yield crawl

    def _engine_has_room(self) -> bool:
        engine = self._crawler.engine
        return engine is not None and not engine.needs_backout()

    def _request(self, request: CrawlRequest) -> Request:
        meta = {
            ID_KEY: request.request_id,
            URL_KEY: request.url,
            # An answer from a cache would say when the cache was filled, not how the page is now.
            "dont_cache": True,
            # Freshet asks again for what failed, within the limits of the host.
            "dont_retry": not self._fleet.options.retry,
        }
        # Pages are crawled again and again, which is no mistake.
        return Request(request.url, meta=meta, dont_filter=True, errback=self.not_downloaded)

    def not_downloaded(self, failure: Failure) -> Failure:
        """Answer for a request without a response, and leave it to Scrapy to log why."""
        request_id = failure.request.meta.get(ID_KEY)  # type: ignore[attr-defined]
        if request_id is not None:
            forbidden = isinstance(failure.value, IgnoreRequest) and str(failure.value) == FORBIDDEN
            if not forbidden:
                self._fleet.fail(request_id)
            elif not self._has_moved(request_id, failure.request):  # type: ignore[attr-defined]
                self._fleet.fail(request_id, "disallowed")
        return failure

    def _has_moved(self, request_id: str, request: Request) -> bool:
        """Whether a page has moved to where nobody may crawl, and is answered so."""
        moved, ticket = moved_to(request), self._fleet.ticket(request_id)
        if not self._fleet.options.redirected or moved is None or ticket is None:
            return False
        self._fleet.answer(request_id, redirected(ticket.request, *moved, time.time()))
        return True

    async def process_spider_output(
        self,
        response: Response,
        result: AsyncIterator[Any],
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 gives it
    ) -> AsyncIterator[Any]:
        """Pass on what the spider made of a response, and answer when it has made all of it."""
        request_id = _id_of(response)
        handed_on = False
        try:
            async for made in result:
                ticket = self._fleet.ticket(request_id)
                if isinstance(made, Request):
                    again = _tries_again(made, response)
                    handed_on |= again
                    if not again and not self._may_follow(made, request_id):
                        continue
                elif made is not None and ticket is not None:
                    # Of None Scrapy tells nobody anything.
                    ticket.items += 1
                yield made
        except Exception:
            self._fail(request_id)
            raise
        if request_id is not None and not handed_on:
            self._scraped(request_id, response)

    def process_spider_exception(
        self,
        response: Response,
        exception: Exception,  # noqa: ARG002 - the hook's
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 gives it
    ) -> None:
        """Answer that a crawl failed whose response the spider could not take."""
        self._fail(_id_of(response))

    def _scraped(self, request_id: str, response: Response) -> None:
        ticket = self._fleet.ticket(request_id)
        if ticket is None or ticket.outcome is None:
            return
        if ticket.outcome.result is None:
            ticket.outcome = _with_content(ticket.outcome, response)
            if self._fleet.options.links:
                self._fleet.discover(request_id, links_of(response, self._agent))
        ticket.scraped = True
        self._fleet.settle(request_id)

    def _may_follow(self, request: Request, request_id: str | None) -> bool:
        """Whether a request of the spider's own is made: it is none of the budget's."""
        if request_id is None:
            return True
        request.meta.pop(ID_KEY, None)
        if self._fleet.options.follow:
            return True
        if not self._left_out:
            self._left_out = True
            log.info("links are not followed: Freshet asks for pages; FRESHET_FOLLOW allows it")
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value("freshet/not_followed")
        return False

    def item_done(self, response: Response | None) -> None:
        """Note that the pipelines are done with an item."""
        request_id = _id_of(response)
        ticket = self._fleet.ticket(request_id)
        if ticket is not None and request_id is not None:
            ticket.items -= 1
            self._fleet.settle(request_id)

    def item_failed(self, response: Response | Failure | None) -> None:
        """Answer that a crawl failed whose content a pipeline could not take."""
        self._fail(_id_of(response))

    def _fail(self, request_id: str | None) -> None:
        if request_id is not None:
            self._fleet.fail(request_id)

    async def spider_closed(self) -> None:
        """Leave the fleet in order."""
        await self._fleet.stop()


def _with_content(found: CrawlOutcome, response: Response) -> CrawlOutcome:
    """What was found, with what its content says."""
    canonical = str(response.meta.get(CANONICAL_KEY) or "")
    if canonical:
        target = joined(response, canonical)
        if not is_same_page(found.url, target):
            return replace(found, result="canonical", canonical_url=target_of(target))
    digest = str(response.meta.get(DIGEST_KEY) or digest_of(response))
    # Half of a character, as undecodable bytes leave them, is nothing that a message can hold.
    whole = digest.encode(errors="backslashreplace").decode()
    return replace(found, digest=whole[:MOST_DIGEST_CHARACTERS])


def _id_of(response: Response | Failure | None) -> str | None:
    request = getattr(response, "request", None)
    return None if request is None else request.meta.get(ID_KEY)


def _tries_again(request: Request, response: Response) -> bool:
    """Whether the spider asks once more for the page of a response, as `get_retry_request` does."""
    same = request.meta.get(ID_KEY) is not None and request.meta.get(ID_KEY) == _id_of(response)
    return same and request.meta.get("retry_times", 0) > response.meta.get("retry_times", 0)
