"""A robots.txt is told of and read again, and one that cannot be had allows nothing meanwhile."""

import asyncio
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from scrapy_freshet import robots
from scrapy_freshet.robots import (
    FORBIDDEN,
    UNREAD_SECONDS,
    DailyRobotsTxtMiddleware,
    crawl_delay,
)

PAGE = "http://a.example/page"


class Host:
    """Answers for its robots.txt, at a time that is set."""

    def __init__(self, monkeypatch):
        self.status, self.body, self.asked, self.now = 200, b"", 0, 1000.0
        monkeypatch.setattr(robots, "time", SimpleNamespace(monotonic=lambda: self.now))
        crawler = get_crawler(Spider, {"ROBOTSTXT_OBEY": True})
        crawler.engine = SimpleNamespace(download_async=self.answer)
        self.middleware = DailyRobotsTxtMiddleware(crawler)

    async def answer(self, request):
        self.asked += 1
        await asyncio.sleep(0)
        return Response(request.url, self.status, body=self.body)

    async def why_not(self):
        """Why the page may not be crawled; None: it may."""
        try:
            await self.middleware.process_request(Request(PAGE))
        except IgnoreRequest as error:
            return str(error)


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_while_a_robots_txt_cannot_be_had_nothing_is_crawled_and_nothing_is_forbidden(
    host, status
):
    host.status = status
    said = await asyncio.gather(*(host.why_not() for _ in range(3)))
    assert all(one not in {None, FORBIDDEN} for one in said)
    host.now += UNREAD_SECONDS - 1
    assert await host.why_not() == said[0]
    assert host.asked == 1
    host.status, host.now = 200, host.now + 1
    assert await host.why_not() is None
    assert host.asked == 2


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_a_host_without_one_may_be_crawled_and_is_asked_again_after_a_day(host, status):
    host.status = status
    assert await host.why_not() is None
    host.now += 80_000.0
    assert await host.why_not() is None
    assert host.asked == 1


async def test_what_a_robots_txt_forbids_is_forbidden(host):
    host.body = b"User-agent: *\nDisallow: /page"
    assert await host.why_not() == FORBIDDEN


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        (b"User-agent: *\nCrawl-delay: 4", 4.0),
        (b"User-agent: *\nRequest-rate: 1/10", 10.0),
        (b"User-agent: *\nCrawl-delay: 99999999999", 1e7),
        (b"User-agent: other\nCrawl-delay: 4", None),
        (b"User-agent: *\nCrawl-delay: 0.1", None),
        (b"\xff\xfe\x00", None),
        (b"", None),
    ],
)
def test_a_delay_is_told_where_it_is_longer_than_the_default(text, delay):
    assert crawl_delay(text, "freshet") == delay


def test_a_robots_txt_is_forgotten_after_a_day():
    crawler = get_crawler(Spider, {"ROBOTSTXT_OBEY": True})
    middleware = DailyRobotsTxtMiddleware(crawler)
    middleware._parsers["a.example"] = rules = object()
    middleware._forget_old("a.example", now=10.0)
    assert middleware._parsers["a.example"] is rules
    middleware._asked_at["a.example"] = 10.0
    middleware._forget_old("a.example", now=86_000.0)
    assert middleware._parsers["a.example"] is rules
    middleware._forget_old("a.example", now=86_500.0)
    assert "a.example" not in middleware._parsers
