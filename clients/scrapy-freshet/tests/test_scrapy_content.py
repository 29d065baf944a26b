"""What matters in a page, and what is told of a response."""

import os
import resource
import time
from ipaddress import ip_address

import pytest
from scrapy.http import HtmlResponse, Request, Response
from scrapy_freshet.content import digest_of, main_words
from scrapy_freshet.messages import CrawlRequest
from scrapy_freshet.outcomes import outcome_of, retry_after

PAGE = "<html><head><title>T</title></head><body>{around}<main>{words}</main></body></html>"


def page(words, around=""):
    body = PAGE.format(words=words, around=around)
    return HtmlResponse("http://a.example/", body=body, encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "around"),
    [
        ("one  two\n", ""),
        ("<p>one</p> <b>two</b>", ""),
        ("one two", "<nav>menu</nav>"),
        ("one two<script>track(17)</script>", "<footer>2026</footer>"),
    ],
)
def test_what_is_around_the_words_does_not_count(words, around):
    assert digest_of(page(words, around)) == digest_of(page("one two"))


@pytest.mark.parametrize("words", ["one", "one two three", "two one", ""])
def test_other_words_count(words):
    assert digest_of(page(words)) != digest_of(page("one two"))


@pytest.mark.parametrize(
    "body",
    [
        "<div id='app'></div><script>show({})</script><noscript>Allow scripts.</noscript>",
        "<main><img src='{}.png'></main>",
        "<header><h1>{}</h1></header>",
        # A main that scripts fill says less than what is beside it.
        "<main></main><div>{}</div>",
    ],
)
def test_a_page_whose_title_is_its_only_word_changes_when_its_body_does(body):
    text = f"<html><head><title>Shop</title></head><body>{body}</body></html>"
    one, other, same = (
        digest_of(HtmlResponse("http://a.example/", body=text.format(n), encoding="utf-8"))
        for n in (1, 2, 1)
    )
    assert one != other
    assert one == same


def test_a_page_without_main_is_its_body():
    first, second = (
        HtmlResponse("http://a.example/", body=f"<p>{words}</p>", encoding="utf-8")
        for words in ("one", "two")
    )
    assert digest_of(first) != digest_of(second)


@pytest.mark.parametrize("body", [b"", b"\x00\xff<", b"<" * 5_000, b"<main>" * 3_000])
def test_any_bytes_have_a_digest(body):
    assert digest_of(HtmlResponse("http://a.example/", body=body))
    assert digest_of(Response("http://a.example/", body=body))


def test_what_is_around_the_main_content_or_between_its_words_leaves_the_others():
    words = "<p>one<!-- 1 --> two<aside>three<b>four</b></aside> five <i>six</i></p>seven"
    assert main_words(page(words)) == ["T", "one", "two", "five", "six", "seven"]
    assert main_words(page(words, "<aside>")) == []


@pytest.mark.slow(0.5)
def test_a_page_that_is_made_to_take_long_keeps_no_crawler_from_the_others():
    page = b"<body>" + b"<b>" * 2_000 + b"x<i></i>" * 125_000
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (8, 8))  # some forty times what it takes
        os._exit(not digest_of(HtmlResponse("http://a.example/", body=page, encoding="utf-8")))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *((200, None), (304, "not_modified"), (404, "gone"), (410, "gone")),
        *((301, "failed"), (403, "failed"), (429, "failed"), (503, "failed")),
    ],
)
def test_a_status_says_what_the_crawl_found(status, result):
    request = CrawlRequest("1", "http://a.example/", "a.example", 0.0)
    outcome = outcome_of(request, Response(request.url, status), now=5.0)
    assert (outcome.result, outcome.http_status, outcome.crawled_at) == (result, status, 5.0)


@pytest.mark.parametrize(
    ("location", "result", "target"),
    [
        ("/2", "redirected", "http://a.example/2"),
        ("https://b.example/ä#x", "redirected", "https://b.example/%C3%A4"),
        ("http://b.example/" + "x" * 2048, "redirected", None),
        ("http://A.example:80", "failed", None),
        ("http://[", "redirected", None),
        ("", "failed", None),
    ],
)
def test_a_redirect_that_is_not_followed_leads_elsewhere(location, result, target):
    request = CrawlRequest("1", "http://a.example/", "a.example", 0.0)
    for status in (301, 302, 308):
        response = Response(request.url, status, headers={"Location": location})
        outcome = outcome_of(request, response, now=5.0)
        assert (outcome.result, outcome.redirected_to) == (result, target)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"120", 120.0),
        (b"99999999999999999999999", 1e9),
        (b"Sun, 22 Nov 2026 05:00:10 GMT", 10.0),
        (b"Sun, 22 Nov 2020 05:00:10 GMT", 0.0),
        (b"soon", None),
        (b"-5", None),
        (b"\xff\xb2", None),
        (None, None),
    ],
)
def test_how_long_a_server_asks_to_be_left_alone(header, seconds):
    assert retry_after(header, 1795323600.0) == seconds


@pytest.fixture(params=["Asia/Tokyo", "America/New_York"])
def far_from_greenwich(request, monkeypatch):
    """A crawler whose clock is set to another zone."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    "date",
    [
        *(b"Sun, 22 Nov 2026 05:00:10 GMT", b"Sunday, 22-Nov-26 05:00:10 GMT"),
        *(b"Sun Nov 22 05:00:10 2026", b"Sun, 22 Nov 2026 05:00:10 -0000"),
    ],
)
@pytest.mark.usefixtures("far_from_greenwich")
def test_a_date_is_of_greenwich_in_all_three_forms_wherever_the_crawler_is(date):
    assert retry_after(date, 1795323600.0) == 10.0


ONE = ip_address("203.0.113.7")
LONG = ip_address("2001:db8:0:0::7")


@pytest.mark.parametrize(
    ("url", "address", "proxy", "said"),
    [
        ("http://a.example/", ONE, None, "203.0.113.7"),
        ("http://A.example/2", LONG, None, "2001:db8::7"),
        ("http://b.example/", ONE, None, None),  # redirected there
        ("http://a.example/", ONE, "http://proxy.example:3128", None),
        ("http://a.example/", None, None, None),  # out of a cache
    ],
)
def test_an_outcome_says_at_what_address_the_host_was(url, address, proxy, said):
    request = CrawlRequest("1", "http://a.example/", "a.example", 0.0)
    came_by = Request(url, meta={"proxy": proxy} if proxy else {})
    for status in (200, 304, 404, 503):
        response = Response(url, status, ip_address=address, request=came_by)
        assert outcome_of(request, response, now=5.0).group == said
    elsewhere = Response(
        request.url, 302, {"Location": "/2"}, ip_address=ONE, request=Request(request.url)
    )
    moved = outcome_of(request, elsewhere, now=5.0)
    assert (moved.result, moved.group) == ("redirected", "203.0.113.7")
