"""Each request is answered once, when the spider and its pipelines are done with it."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler
from scrapy_freshet.book import GRACE_SECONDS
from scrapy_freshet.downloader_middleware import OutcomeMiddleware
from scrapy_freshet.fleet import Fleet
from scrapy_freshet.host_middleware import BEGAN, HostMiddleware
from scrapy_freshet.messages import (
    MOST_DIGEST_CHARACTERS,
    MOST_LINKS_A_MESSAGE,
    CrawlRequest,
)
from scrapy_freshet.options import options_of
from scrapy_freshet.spider_middleware import (
    CANONICAL_KEY,
    DIGEST_KEY,
    ID_KEY,
    FleetMiddleware,
)
from twisted.python.failure import Failure

NOW, URL = 1_000.0, "http://a.example/1"


class Broker:
    """Takes what a fleet sends."""

    def __init__(self):
        self.outcomes = []
        self.headers = []

    async def send_and_wait(self, topic, value, key, headers):
        self.outcomes.append(msgspec.json.decode(value))
        self.headers.append(headers)
        await asyncio.sleep(0)


@pytest.fixture
def member():
    """A crawler's parts, with one request taken."""
    crawler = get_crawler(Spider)
    fleet = Fleet(
        options_of(Settings({"FRESHET_REDIRECTED": True})), crawler.stats.inc_value, lambda: NOW
    )
    fleet._producer = broker = Broker()
    made = SimpleNamespace(
        fleet=fleet,
        broker=broker,
        spiders=FleetMiddleware(crawler, fleet),
        downloads=OutcomeMiddleware(crawler, fleet),
        hosts=HostMiddleware(fleet),
        stats=crawler.stats,
    )
    made.request = take(made, "r1")
    return made


def take(member, request_id, offset=7, deadline=NOW + 100, headers=()):
    value = msgspec.json.encode(CrawlRequest(request_id, URL, "a.example", deadline))
    record = SimpleNamespace(partition=0, offset=offset, value=value, headers=headers)
    member.fleet._take(record)
    request = member.fleet._book.next(NOW)
    return None if request is None else member.spiders._request(request)


def downloaded(member, status=200, body=b"<p>words</p>", **more):
    response = HtmlResponse(URL, status, body=body, request=member.request, **more)
    return member.downloads.process_response(member.request, response)


async def scrape(member, response, *made, error=None):
    async def callback():
        for thing in made:
            yield thing
        if error is not None:
            raise error

    return [thing async for thing in member.spiders.process_spider_output(response, callback())]


async def answers(member):
    await asyncio.gather(*member.fleet._sending)
    return member.broker.outcomes


async def test_content_is_answered_when_the_callback_has_ended(member):
    response = downloaded(member)
    assert await answers(member) == []
    await scrape(member, response)
    [outcome] = await answers(member)
    assert outcome["digest"]
    assert (outcome["request_id"], outcome["http_status"]) == ("r1", 200)
    assert member.fleet._book.positions.to_commit() == {0: 8}


async def test_a_traced_request_has_its_header_back_with_its_outcome(member):
    trace = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    take(member, "r2", offset=8, headers=(("other", b"x"), trace))
    for request_id in ("r1", "r2"):
        member.fleet.fail(request_id)
    await asyncio.gather(*member.fleet._sending)
    assert [outcome["request_id"] for outcome in member.broker.outcomes] == ["r1", "r2"]
    assert member.broker.headers == [[], [trace]]


async def test_pipelines_are_waited_for(member):
    response = downloaded(member)
    await scrape(member, response, {"a": 1}, {"a": 2})
    member.spiders.item_done(response)
    assert await answers(member) == []
    member.spiders.item_done(response)
    assert len(await answers(member)) == 1


@pytest.mark.parametrize(("made", "items"), [([None], 0), ([{"a": 1}, None], 1)])
async def test_nothing_is_no_item_that_would_be_waited_for(member, made, items):
    response = downloaded(member)
    await scrape(member, response, *made)
    for _ in range(items):
        assert await answers(member) == []
        member.spiders.item_done(response)
    assert len(await answers(member)) == 1


async def test_an_item_that_no_pipeline_could_store_is_a_failed_crawl(member):
    response = downloaded(member)
    await scrape(member, response, {"a": 1}, {"a": 2})
    member.spiders.item_failed(response)
    member.spiders.item_done(response)
    [outcome] = await answers(member)
    assert outcome["result"] == "failed"


async def test_a_callback_that_raises_is_a_failed_crawl(member):
    response = downloaded(member)
    with pytest.raises(KeyError):
        await scrape(member, response, error=KeyError("title"))
    member.spiders.process_spider_exception(response, KeyError("title"))
    [outcome] = await answers(member)
    assert outcome["result"] == "failed"


async def test_the_spiders_own_digest_counts(member):
    response = downloaded(member)
    response.meta[DIGEST_KEY] = "mine"
    await scrape(member, response)
    assert (await answers(member))[0]["digest"] == "mine"


@pytest.mark.parametrize("digest", ["caf\udce9", b"\xff\xfe", 7, "\ud800" * 300])
async def test_whatever_the_spider_calls_a_digest_can_be_sent(member, digest):
    response = downloaded(member)
    response.meta[DIGEST_KEY] = digest
    await scrape(member, response)
    [answer] = await answers(member)
    assert 0 < len(answer["digest"]) <= MOST_DIGEST_CHARACTERS
    # Else nothing of its partition would be committed any more.
    assert member.fleet._book.positions.to_commit() == {0: 8}


async def test_a_page_without_content_is_answered_at_once_and_once(member):
    response = downloaded(member, 503, headers={"Retry-After": "9"})
    member.spiders.process_spider_exception(response, ValueError())
    [outcome] = await answers(member)
    assert (outcome["result"], outcome["retry_after_seconds"]) == ("failed", 9)


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (IgnoreRequest("Forbidden by robots.txt"), "disallowed"),
        (IgnoreRequest("max redirections reached"), "failed"),
        (TimeoutError(), "failed"),
    ],
)
async def test_what_was_never_downloaded_is_answered_too(member, error, result):
    failure = Failure(error)
    failure.request = member.request
    assert member.request.errback(failure) is failure
    assert [outcome["result"] for outcome in await answers(member)] == [result]


A, B, C = URL, "http://a.example/2", "https://b.example/3"


def led(member, urls, reasons, status=200):
    """The response at the end of redirects."""
    meta = {"redirect_urls": urls[:-1], "redirect_reasons": reasons}
    request = member.request.replace(url=urls[-1], meta=member.request.meta | meta)
    response = HtmlResponse(urls[-1], status, body=b"<p>words</p>", request=request)
    return member.downloads.process_response(request, response)


@pytest.mark.parametrize(
    ("urls", "reasons", "target"),
    [
        ([A, B], [301], B),
        ([A, B, C], [308, 301], C),
        ([A, B, C], [301, 302], B),
        ([A, B, C], [302, 301], None),
        ([A, B], ["meta refresh"], None),
        ([A, B], [307], None),
        ([A, B, A], [301, 301], None),
        ([A, A + "#x"], [301], None),
    ],
)
async def test_a_page_that_has_moved_for_good_says_where_to_and_is_scraped_all_the_same(
    member, urls, reasons, target
):
    response = led(member, urls, reasons)
    item = {"a": 1}
    assert await scrape(member, response, item) == [item]
    assert await answers(member) == []
    member.spiders.item_done(response)
    [outcome] = await answers(member)
    assert (outcome["url"], outcome.get("redirected_to")) == (URL, target)
    if target is None:
        assert outcome["digest"]
        assert "result" not in outcome
    else:
        assert (outcome["result"], outcome["http_status"]) == ("redirected", reasons[0])
        assert "digest" not in outcome


async def test_what_a_moved_page_leads_to_counts_as_its_content_unless_told_otherwise(member):
    member.fleet.options = options_of(Settings())
    await scrape(member, led(member, [A, B], [301]))
    [outcome] = await answers(member)
    assert outcome["digest"]
    assert "result" not in outcome


async def test_a_page_that_has_moved_to_what_is_not_there_is_not_there(member):
    led(member, [A, B], [301], status=404)
    assert [outcome["result"] for outcome in await answers(member)] == ["gone"]


async def test_a_page_that_has_moved_to_where_nobody_may_crawl_has_moved(member):
    failure = Failure(IgnoreRequest("Forbidden by robots.txt"))
    meta = {"redirect_urls": [A], "redirect_reasons": [301]}
    failure.request = member.request.replace(url=C, meta=member.request.meta | meta)
    member.request.errback(failure)
    [outcome] = await answers(member)
    assert (outcome["result"], outcome["redirected_to"]) == ("redirected", C)


def answered(member, *steps):
    """What hosts have answered on the way to a failure, which is the spider's to hear of; 0: an
    answer has begun, and none: nothing came."""
    request = member.request
    for url, status in steps:
        request = request.replace(url=url)
        member.hosts.process_request(request)
        if status == 0:
            member.hosts.began(request)
        elif status is not None:
            member.hosts.process_response(request, HtmlResponse(url, status, request=request))
    return request


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([(A, None)], None),
        ([(A, 0)], BEGAN),
        ([(A, 200)], 200),
        ([(A, 302), (B, 302)], 302),
        ([(A, 301), (B, 503)], 503),
        ([(A, 302), (C, 503)], 302),
        ([(A, 307), (C, None)], 307),
        ([(A, 302), (C, 302), (B, 500)], 500),
        ([(A, 503), (A, None)], None),  # tried once more
    ],
)
async def test_a_crawl_that_failed_tells_what_the_pages_own_host_answered(member, steps, status):
    failure = Failure(TimeoutError())
    failure.request = answered(member, *steps)
    member.request.errback(failure)
    [outcome] = await answers(member)
    assert (outcome["result"], outcome.get("http_status")) == ("failed", status)


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        (C, 503, ("failed", 302, None)),
        (C, 429, ("failed", 302, None)),
        (C, 403, ("failed", 302, None)),
        (C, 404, ("gone", 404, None)),
        (B, 503, ("failed", 503, 9)),
        ("http://A.example:80/2", 503, ("failed", 503, 9)),
        ("https://a.example/2", 503, ("failed", 503, 9)),
        ("http://a.example:8080/2", 503, ("failed", 302, None)),
    ],
)
async def test_a_host_is_left_alone_for_what_it_says_itself_and_not_for_another_one(
    member, end, status, told
):
    request = answered(member, (A, 302), (end, status))
    response = HtmlResponse(end, status, headers={"Retry-After": "9"}, request=request)
    member.downloads.process_response(request, response)
    [outcome] = await answers(member)
    said = (outcome["result"], outcome["http_status"], outcome.get("retry_after_seconds"))
    assert said == told


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("/2", "canonical"),
        (C, "canonical"),
        ("http://[", "canonical"),
        (A + "#x", None),
        ("", None),
    ],
)
async def test_the_spider_may_say_that_another_url_is_the_one_to_keep(member, said, result):
    response = downloaded(member)
    response.meta[CANONICAL_KEY] = said
    await scrape(member, response)
    [outcome] = await answers(member)
    assert outcome.get("result") == result
    assert ("digest" in outcome) == (result is None)
    assert outcome.get("canonical_url") == {"/2": B, C: C}.get(said)


async def test_links_are_not_followed_and_a_try_of_the_same_page_is(member):
    response = downloaded(member)
    again = member.request.copy()
    again.meta["retry_times"] = 1
    copied = Request("http://a.example/2", meta=dict(response.meta))
    assert await scrape(member, response, copied, again) == [again]
    assert await answers(member) == []
    assert member.stats.get_value("freshet/not_followed") == 1
    assert ID_KEY not in copied.meta


async def test_a_request_that_is_read_again_is_crawled_once(member):
    member.fleet._book.positions.forget(0)
    assert take(member, "r1", offset=7) is None
    await scrape(member, downloaded(member))
    assert len(await answers(member)) == 1
    assert member.fleet._book.positions.to_commit() == {0: 8}
    assert take(member, "r1", offset=8) is None
    assert member.fleet._book.positions.to_commit() == {0: 9}


def test_what_is_late_or_no_request_is_left_alone(member):
    assert take(member, "r2", offset=8, deadline=NOW - 1) is None
    member.fleet._take(SimpleNamespace(partition=0, offset=9, value=b"{"))
    assert member.fleet._book.next(NOW) is None
    assert member.stats.get_value("freshet/requests/expired") == 1
    assert member.stats.get_value("freshet/requests/bad") == 1
    assert not member.fleet._book.positions.is_open(0, 8)
    assert not member.fleet._book.positions.is_open(0, 9)


async def test_a_request_that_is_lost_holds_nothing_up_for_ever(member):
    member.fleet._book.turn(NOW + 100 + GRACE_SECONDS)
    assert member.fleet.in_flight == 1
    member.fleet._book.turn(NOW + 101 + GRACE_SECONDS)
    assert member.fleet.in_flight == 0
    assert member.fleet._book.positions.to_commit() == {0: 8}


def test_an_address_of_ones_own_network_is_refused(member):
    with pytest.raises(IgnoreRequest):
        member.downloads.process_request(Request("http://169.254.169.254/latest"))
    member.downloads.process_request(Request("http://a.example/"))


@pytest.mark.parametrize("wanted", [True, False])
async def test_links_are_told_where_it_is_wanted(member, wanted):
    member.fleet.options = replace(member.fleet.options, links=wanted)
    links = [f"http://a.example/{n}" for n in range(2, MOST_LINKS_A_MESSAGE + 3)]
    body = "".join(f'<a href="{link}">x</a>' for link in links).encode()
    await scrape(member, downloaded(member, body=body))
    await member.fleet._finish()
    told = [message for message in member.broker.outcomes if "links" in message]
    assert [len(message["links"]) for message in told] == (
        [MOST_LINKS_A_MESSAGE, 1] if wanted else []
    )
    assert [link for message in told for link in message["links"]] == (links if wanted else [])
    assert {message["url"] for message in told} <= {URL}
    assert sum("digest" in message for message in member.broker.outcomes) == 1
