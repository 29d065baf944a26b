"""What hubs send, and what topics say of their hubs, in all the ways there are."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.receiver.websub.content import MOST_ENTRIES, is_signed, pings_of
from services.receiver.websub.discovery import Topic, discover

TOPIC = "https://a.example/feed"
NOW = 2e9
RSS = b"""<?xml version="1.0"?><!DOCTYPE rss><rss xmlns:a="http://www.w3.org/2005/Atom"><channel>
<link>https://a.example/</link><a:link rel="self" href="/feed"/>
<item><link> /one </link><pubDate>Thu, 01 Jan 1970 00:01:40 GMT</pubDate></item>
<item><link>https://a.example/two</link><pubDate>soon</pubDate></item>
<item><title>no link</title></item></channel></rss>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://a.example/"/>
<entry><link rel="edit" href="/edit"/><link href="/one"/><published>1970-01-01T00:00:50Z</published>
<updated>1970-01-01T00:01:40+00:00</updated></entry>
<entry><link rel="alternate" href="two"/></entry></feed>"""
JSON = b""" {"items": [{"url": "/one", "date_modified": "1970-01-01T00:01:40Z"},
{"url": "two"}, {"id": 3}, 4]}"""


@pytest.mark.parametrize("body", [RSS, ATOM, JSON])
def test_entries_of_every_kind_of_feed_are_pages_with_their_times(body):
    found = [(ping.url, ping.observed_at) for ping in pings_of(TOPIC, body, NOW)]
    assert found == [
        (TOPIC, None),
        ("https://a.example/one", 100.0),
        ("https://a.example/two", None),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"items": 3}',
        b"[1]",
        b'<!DOCTYPE x [<!ENTITY a "b">]><feed><entry><link href="/&a;"/></entry></feed>',
        b'<feed><entry><link href="javascript:x"/></entry></feed>',
        b"\xff\x00",
    ],
)
def test_what_is_no_feed_is_about_the_topic_alone(body):
    assert [ping.url for ping in pings_of(TOPIC, body, NOW)] == [TOPIC]


def test_an_entry_of_the_future_counts_as_of_now_and_only_so_many_count():
    late = b"<feed><entry><link href='/a'/><updated>9000-01-01T00:00:00Z</updated></entry></feed>"
    assert pings_of(TOPIC, late, NOW)[1].observed_at == NOW
    many = b"".join(b"<entry><link href='/%d'/></entry>" % n for n in range(2 * MOST_ENTRIES))
    assert len(pings_of(TOPIC, b"<feed>%s</feed>" % many, NOW)) == MOST_ENTRIES + 1


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_content_makes_its_reading_fail(body):
    assert pings_of(TOPIC, body, NOW)[0].url == TOPIC


def signature(method, secret=b"s", body=b"body"):
    return f"{method}={hmac.new(secret, body, getattr(hashlib, method)).hexdigest()}"


def test_only_the_secret_signs():
    for method in ("sha1", "sha256", "sha384", "sha512"):
        assert is_signed(signature(method), "s", b"body")
        assert is_signed(signature(method).upper(), "s", b"body")
        assert not is_signed(signature(method), "s", b"other")
        assert not is_signed(signature(method, b"t"), "s", b"body")
        assert not is_signed(signature(method)[:-1], "s", b"body")
    for header in ("", "=", "sha256", "sha256=", "md5=" + "0" * 32, "sha256=\udcff"):
        assert not is_signed(header, "s", b"body")


HEAD = '<html><head><LINK rel="stylesheet hub" href="/hub"></head><body></body></html>'


@pytest.mark.parametrize(
    ("headers", "body", "found"),
    [
        (['</hub>; rel="hub"'], "", Topic("https://a.example/hub", TOPIC)),
        (
            ["<https://h.example/?a=1,2>;title=x; rel=hub , </me>; rel=self"],
            '<link rel="hub" href="/other">',
            Topic("https://h.example/?a=1,2", "https://a.example/me"),
        ),
        ([], HEAD, Topic("https://a.example/hub", TOPIC)),
        (
            [],
            '<feed><atom:link rel="hub" href="/h"/><atom:link rel="self" href="/f"/></feed>',
            Topic("https://a.example/h", "https://a.example/f"),
        ),
        ([], "<html><body><link rel='hub' href='/mine'></body></html>", None),
        ([], "<rss><channel><item><link rel='hub' href='/mine'/></item></channel></rss>", None),
        (["garbage", "<>", '<x>; rel="next"'], "no text", None),
    ],
)
def test_a_topic_names_its_hub_in_headers_or_in_its_head(headers, body, found):
    assert discover(TOPIC, headers, body.encode()) == found


@given(st.text(max_size=200), st.binary(max_size=200))
def test_no_topic_makes_discovery_fail(header, body):
    discover(TOPIC, [header], body)
