"""At the downloader's end: what a page's own host has answered, before anything is made of it.

Whatever becomes of an answer (it leads in circles, is too large, breaks off), there was one: the
host is well, or says that it is not. And what another host says, to which the page has led, is not
the page's host's to answer for.
"""

from typing import Final, Self

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_freshet.fleet import LATE, Fleet, fleet_of
from scrapy_freshet.moving import host_of
from scrapy_freshet.spider_middleware import ID_KEY

BEGAN: Final = 200
"""Stands for the status of an answer that has begun: Scrapy tells it with the whole body only."""


class HostMiddleware:
    """Notes with which status the host of each page has answered last."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's way to make one."""
        middleware = cls(fleet_of(crawler))
        crawler.signals.connect(middleware.began, signals.headers_received)
        return middleware

    def process_request(
        self,
        request: Request,
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 gives it
    ) -> None:
        """Forget what a try before this one has brought.

        Raises:
            IgnoreRequest: nobody waits for it any more, as a robots.txt was long in coming.
        """
        if self._fleet.is_late(request.meta.get(ID_KEY)):
            raise IgnoreRequest(LATE)
        self._note(request, None)

    def began(self, request: Request) -> None:
        """Note that an answer has begun."""
        self._note(request, BEGAN)

    def process_response(
        self,
        request: Request,
        response: Response,
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 gives it
    ) -> Response:
        """Note the status of an answer that is whole."""
        self._note(request, response.status)
        return response

    def _note(self, request: Request, status: int | None) -> None:
        ticket = self._fleet.ticket(request.meta.get(ID_KEY))
        if ticket is not None and host_of(request.url) == host_of(ticket.request.url):
            ticket.status = status
