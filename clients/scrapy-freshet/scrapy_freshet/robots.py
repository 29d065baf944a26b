"""robots.txt: its crawl-delay is told to Freshet, and it is read again every day.

One that answers 429 or a server error, or cannot be reached, says nothing, and until it can be read
nothing is allowed, as RFC 9309 has it. Pages that are not crawled for that have failed: nobody has
forbidden them.
"""

import inspect
import time
from collections import OrderedDict
from typing import Any, Final

from protego import Protego
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_freshet.options import DEFAULTS
from scrapy_freshet.robots_groups import own_group

MOST_BYTES: Final = 512 * 1024
"""RFC 9309: crawlers read at least 500 KiB of it. What comes later does not count."""

MOST_HOSTS: Final = 10_000
UNREAD_SECONDS: Final = 600.0
"""A robots.txt that could not be had is tried again after so long."""

LEAST_DELAY_SECONDS: Final = 1.0
"""What asks for less than this asks for more crawls than Freshet's default: nobody need be told."""

MOST_DELAY_SECONDS: Final = 1e7
"""Nobody can say more in `host-limits`: who wants to be crawled never says so by rules."""

FORBIDDEN: Final = "Forbidden by robots.txt"
"""What Scrapy says of a request that robots.txt forbids."""


def crawl_delay(body: bytes, user_agent: str) -> float | None:
    """Seconds between two crawls that a robots.txt asks for; None: it says nothing that matters.

    Args:
        body: of the file; only its beginning is read.
        user_agent: who asks.
    """
    rules = Protego.parse(_own_group(body, user_agent))
    delays = [rules.crawl_delay(user_agent) or 0.0]
    rate = rules.request_rate(user_agent)
    if rate is not None and rate.requests > 0:
        delays.append(rate.seconds / rate.requests)
    longest = max(delays)
    return min(longest, MOST_DELAY_SECONDS) if longest > LEAST_DELAY_SECONDS else None


def agent_of(settings: BaseSettings) -> str:
    """As whom a crawler obeys robots.txt."""
    return str(settings.get("ROBOTSTXT_USER_AGENT") or settings.get("USER_AGENT") or "*")


def _own_group(body: bytes, user_agent: str) -> str:
    return own_group(body[:MOST_BYTES].decode("utf-8-sig", errors="ignore"), user_agent)


class DailyRobotsTxtMiddleware(RobotsTxtMiddleware):
    """Scrapy's own, which reads a robots.txt once; a member of a fleet runs for months."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._seconds = crawler.settings.getfloat(
            "FRESHET_ROBOTS_SECONDS", DEFAULTS["FRESHET_ROBOTS_SECONDS"]
        )
        self._agent = agent_of(crawler.settings)
        self._asked_at: OrderedDict[str, float] = OrderedDict()
        self._unread: dict[str, str] = {}
        """Host → why nobody knows what its robots.txt says, nor that there is none."""

    async def robot_parser(self, request: Request, *more: Any) -> Any:
        """The rules of the request's host, read again where they are old.

        Of requests that wait for the same file, Scrapy 2.19 gives the rules to the first, and lets
        the others pass without: they are looked up again.

        Args:
            request: to be looked at.
            more: the spider, as Scrapy 2.13 has it.

        Raises:
            IgnoreRequest: they cannot be had for now.
        """
        netloc = urlparse_cached(request).netloc
        self._forget_old(netloc, time.monotonic())
        rules = super().robot_parser(request, *more)
        if inspect.isawaitable(rules):
            await rules
        if netloc in self._unread:
            raise IgnoreRequest(f"its robots.txt {self._unread[netloc]}")
        return self._parsers.get(netloc)

    def _parse_robots(self, response: Response, netloc: str, *more: Any) -> Any:
        if response.status == 429 or response.status >= 500:
            self._unread[netloc] = f"answers {response.status}"
        # Scrapy would parse all of any answer, that of an error too, and for all agents.
        rules = _own_group(response.body, self._agent) if 200 <= response.status < 300 else ""
        return super()._parse_robots(response.replace(body=rules.encode()), netloc, *more)

    def _robots_error(self, exc: Any, netloc: str) -> None:
        error = exc.value if isinstance(exc, Failure) else exc  # Scrapy 2.13 gives a failure
        if not isinstance(error, IgnoreRequest):
            self._unread[netloc] = f"cannot be had: {type(error).__name__}"
        super()._robots_error(exc, netloc)

    def _forget_old(self, netloc: str, now: float) -> None:
        if netloc in self._parsers:
            rules = self._parsers[netloc]
            is_read = rules is not None and netloc not in self._unread
            keep = self._seconds if is_read else UNREAD_SECONDS
            if isinstance(rules, Deferred) or now - self._asked_at.get(netloc, now) < keep:
                return
            del self._parsers[netloc]
            self._unread.pop(netloc, None)
        self._asked_at[netloc] = now
        self._asked_at.move_to_end(netloc)
        if len(self._asked_at) > MOST_HOSTS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        # One that has yet to answer would be remembered without a time, and never asked again.
        answered = (
            host for host in self._asked_at if not isinstance(self._parsers.get(host), Deferred)
        )
        if (oldest := next(answered, None)) is not None:
            del self._asked_at[oldest]
            self._parsers.pop(oldest, None)
            self._unread.pop(oldest, None)
