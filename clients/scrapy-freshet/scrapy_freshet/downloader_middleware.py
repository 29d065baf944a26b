"""Between the engine and the downloader: what the last response of each request says of the page.

It stands closest to the engine: what comes to it, neither redirects nor retries will change.
"""

import time
from typing import Self
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.httpobj import urlparse_cached

from scrapy_freshet.addresses import is_private_literal, is_public
from scrapy_freshet.fleet import LATE, Fleet, fleet_of
from scrapy_freshet.moving import host_of, moved_to
from scrapy_freshet.outcomes import GONE, has_content, outcome_of, redirected
from scrapy_freshet.robots import agent_of, crawl_delay
from scrapy_freshet.spider_middleware import ID_KEY


class OutcomeMiddleware:
    """Notes what was downloaded, and answers at once where there is no content to be scraped."""

    def __init__(self, crawler: Crawler, fleet: Fleet) -> None:
        self._crawler = crawler
        self._fleet = fleet

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's way to make one."""
        return cls(crawler, fleet_of(crawler))

    def process_request(
        self,
        request: Request,
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 gives it
    ) -> None:
        """Refuse addresses that are not public, and what nobody waits for any more.

        Raises:
            IgnoreRequest: says which.
        """
        if self._fleet.is_late(request.meta.get(ID_KEY)):
            raise IgnoreRequest(LATE)
        host = urlparse_cached(request).hostname
        if not self._fleet.options.private_addresses and is_private_literal(host):
            raise IgnoreRequest(f"{host} is not public")

    def process_response(
        self,
        request: Request,
        response: Response,
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 gives it
    ) -> Response:
        """Note what a response says of the page, and a robots.txt of its host.

        Raises:
            IgnoreRequest: it came from an address that is not public.
        """
        address = response.ip_address
        private = address is not None and not is_public(str(address))
        if private and not self._fleet.options.private_addresses and "proxy" not in request.meta:
            raise IgnoreRequest(f"{address} is not public")
        if request.callback is NO_CALLBACK and self._fleet.options.crawl_delays:
            self._note_robots(request, response)
        ticket = self._fleet.ticket(request.meta.get(ID_KEY))
        if ticket is not None:
            asked, now = ticket.request, time.time()
            moved = moved_to(request) if self._fleet.options.redirected else None
            ticket.outcome = outcome_of(asked, response, now, ticket.status)
            if not has_content(response.status):
                self._fleet.answer(asked.request_id, ticket.outcome)
            elif moved is not None:
                ticket.outcome = redirected(asked, *moved, now)
        return response

    def _note_robots(self, request: Request, response: Response) -> None:
        first = request.meta.get("redirect_urls", [request.url])[0]
        if urlsplit(first).path != "/robots.txt" or response.status not in {200, *GONE}:
            return
        agent = agent_of(self._crawler.settings)
        delay = crawl_delay(response.body, agent) if response.status == 200 else None
        if host := host_of(first):
            self._fleet.delay(host, delay or 0.0)
