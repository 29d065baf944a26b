"""What a robots.txt asks for is told, and that it asks for nothing any more."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from scrapy import Request, Spider
from scrapy.http import TextResponse
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler
from scrapy_freshet.delays import Delays
from scrapy_freshet.downloader_middleware import OutcomeMiddleware
from scrapy_freshet.fleet import Fleet
from scrapy_freshet.messages import CrawlRequest
from scrapy_freshet.options import options_of

DELAY, NONE = b"User-agent: *\nCrawl-delay: 10", b"User-agent: *\nDisallow: /private"


@pytest.fixture
def member():
    crawler = get_crawler(Spider)
    fleet = Fleet(options_of(Settings()), crawler.stats.inc_value, lambda: 0.0)
    told = []

    async def send_and_wait(_topic, value, key, headers):
        told.append((key, msgspec.json.decode(value)))

    fleet._producer = SimpleNamespace(send_and_wait=send_and_wait)
    return SimpleNamespace(fleet=fleet, told=told, downloads=OutcomeMiddleware(crawler, fleet))


async def read_robots(member, host, body, status=200):
    request = Request(f"http://{host}/robots.txt", callback=NO_CALLBACK)
    response = TextResponse(request.url, status, body=body, request=request)
    member.downloads.process_response(request, response)
    await asyncio.sleep(0)
    found = [(of["crawl_delay_seconds"], of["max_crawls_per_second"]) for _, of in member.told]
    assert all((of["host"], of["only"]) == (host, "crawl-delay") for _, of in member.told)
    member.told.clear()
    return found


@pytest.mark.parametrize(("body", "status"), [(NONE, 200), (b"", 200), (b"?", 404), (b"?", 410)])
async def test_a_delay_that_robots_txt_asks_for_no_more_is_over(member, body, status):
    assert await read_robots(member, "a.example:8080", DELAY) == [(10.0, 0.1)]
    assert await read_robots(member, "a.example:8080", DELAY) == []
    assert await read_robots(member, "a.example:8080", b"?", status=503) == []
    assert await read_robots(member, "a.example:8080", body, status) == [(0.0, None)]
    assert await read_robots(member, "a.example:8080", body, status) == []
    assert await read_robots(member, "a.example:8080", DELAY) == [(10.0, 0.1)]


async def test_what_a_crawler_of_before_has_told_of_a_page_under_way_is_over_too(member):
    request = msgspec.json.encode(CrawlRequest("r1", "http://a.example/1", "a.example", 100.0))
    record = SimpleNamespace(partition=0, offset=7, value=request, headers=())
    member.fleet._take(record)
    assert member.fleet._book.next(0.0) is not None
    assert await read_robots(member, "a.example", NONE) == [(0.0, None)]
    assert await read_robots(member, "a.example", NONE) == []
    # Of a host that a redirect leads to Freshet knows nothing, and need not.
    assert await read_robots(member, "elsewhere.example", NONE) == []


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("a.example", "a.example"),
        ("a.example:8080", "a.example:8080"),
        ("a.example:80", "https://a.example:80"),
        ("a.example:443", "http://a.example:443"),
        ("[::1]:80", "https://[::1]:80"),
        ("[2001:db8::80]", "[2001:db8::80]"),
    ],
)
def test_a_host_on_the_port_of_the_other_scheme_is_told_with_its_own(host, said):
    assert Delays().news(host, 5.0, ()).host == said
