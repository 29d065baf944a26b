"""A robots.txt is told of and read again, and one that cannot be had allows nothing meanwhile."""

import asyncio
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import DownloadCancelledError, IgnoreRequest
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from scrapy_freshet import robots
from scrapy_freshet.robots import (
    FORBIDDEN,
    MOST_BYTES,
    UNREAD_SECONDS,
    DailyRobotsTxtMiddleware,
    crawl_delay,
)
from twisted.internet.error import ConnectionLost, DNSLookupError
from twisted.web.client import ResponseFailed

PAGE = "http://a.example/page"


class Host:
    """Answers for its robots.txt, at a time that is set."""

    def __init__(self, monkeypatch):
        self.status, self.body, self.asked, self.now = 200, b"", 0, 1000.0
        self.error, self.answers = None, asyncio.Event()
        self.answers.set()
        monkeypatch.setattr(robots, "time", SimpleNamespace(monotonic=lambda: self.now))
        crawler = get_crawler(Spider, {"ROBOTSTXT_OBEY": True, "USER_AGENT": "us/1"})
        crawler.engine = SimpleNamespace(download_async=self.answer)
        self.middleware = DailyRobotsTxtMiddleware(crawler)

    async def answer(self, request):
        self.asked += 1
        await asyncio.sleep(0)
        if request.url.startswith(PAGE.removesuffix("page")):
            await self.answers.wait()
        if self.error is not None:
            raise self.error
        return Response(request.url, self.status, body=self.body)

    async def why_not(self, page=PAGE):
        """Why the page may not be crawled; None: it may."""
        try:
            await self.middleware.process_request(Request(page))
        except IgnoreRequest as error:
            return str(error)


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((status, None) for status in (429, 500, 503)),
        *((200, error) for error in (TimeoutError(), ConnectionLost(), DNSLookupError())),
        (200, ResponseFailed([])),
        (200, DownloadCancelledError("its size is larger than download max size")),
    ],
)
async def test_while_a_robots_txt_cannot_be_had_nothing_is_crawled_and_nothing_is_forbidden(
    host, status, error
):
    host.status, host.error = status, error
    said = await asyncio.gather(*(host.why_not() for _ in range(3)))
    assert all(one not in {None, FORBIDDEN} for one in said)
    host.now += UNREAD_SECONDS - 1
    assert await host.why_not() == said[0]
    assert host.asked == 1
    host.status, host.error, host.now = 200, None, host.now + 1
    assert await host.why_not() is None
    assert host.asked == 2


async def test_a_host_that_answers_late_is_asked_again_though_very_many_others_came_between(
    host, monkeypatch
):
    monkeypatch.setattr(robots, "MOST_HOSTS", 3)
    host.answers.clear()
    late = asyncio.create_task(host.why_not())
    await asyncio.sleep(0)
    for number in range(10):
        assert await host.why_not(f"http://{number}.example/") is None
    host.error = TimeoutError()
    host.answers.set()
    assert await late is not None
    host.error, host.now = None, host.now + UNREAD_SECONDS
    assert await host.why_not() is None
    assert len(host.middleware._asked_at) == len(host.middleware._parsers) == 3


async def test_a_robots_txt_that_was_not_asked_for_says_nothing_until_it_is_asked_for_again(host):
    host.error = IgnoreRequest("max redirections reached")
    assert await host.why_not() is None
    host.error, host.body = None, b"User-agent: *\nDisallow: /"
    host.now += UNREAD_SECONDS
    assert await host.why_not() == FORBIDDEN


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_a_host_without_one_may_be_crawled_and_is_asked_again_after_a_day(host, status):
    host.status, host.body = status, b"User-agent: *\nDisallow: /"
    assert await host.why_not() is None
    host.now += 80_000.0
    assert await host.why_not() is None
    assert host.asked == 1


async def test_what_a_robots_txt_forbids_is_forbidden(host):
    host.body = b"User-agent: *\nDisallow: /page"
    assert await host.why_not() == FORBIDDEN


async def test_rules_for_very_many_agents_are_not_kept_for_each_of_them(host):
    agents = b"".join(b"User-agent: a%d\n" % n for n in range(300))
    rules = b"".join(b"Disallow: /%d\n" % n for n in range(300))
    host.body = agents + rules + b"User-agent: Us\nDisallow: /page\n"
    assert await host.why_not() == FORBIDDEN
    found = host.middleware._parsers["a.example"].rp
    assert sum(len(of._rules) for of in found._user_agents.values()) == 1


@pytest.mark.parametrize("agent", ["us", "US", "*"])
async def test_what_is_for_the_crawler_is_obeyed_and_what_is_for_others_is_not(host, agent):
    host.body = b"User-agent: other\nDisallow: /\n\nUser-agent: %b\nDisallow: /page"
    host.body %= agent.encode()
    assert await host.why_not() == FORBIDDEN
    host.body, host.now = host.body.replace(b"/page", b"/else"), host.now + 90_000.0
    assert await host.why_not() is None


async def test_of_a_robots_txt_that_does_not_end_the_beginning_counts(host):
    start = b"User-agent: *\nDisallow: /start\n#"
    host.body = start + b"x" * (MOST_BYTES - len(start)) + b"\nDisallow: /page\n"
    assert await host.why_not() is None


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
