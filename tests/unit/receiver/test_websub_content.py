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
EVER = 1e10
"""Longer than anything is old."""

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


@pytest.mark.parametrize("before", [b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n "])
@pytest.mark.parametrize("body", [RSS, ATOM, JSON])
def test_entries_of_every_kind_of_feed_are_pages_with_their_times(body, before):
    found = [(ping.url, ping.observed_at) for ping in pings_of(TOPIC, before + body, NOW, EVER)]
    assert found == [
        (TOPIC, None),
        ("https://a.example/one", 100.0),
        ("https://a.example/two", None),
    ]


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("<guid>https://a.example/g</guid>", "https://a.example/g"),
        ("<guid isPermaLink='true'> https://a.example/g </guid>", "https://a.example/g"),
        ("<guid>https://a.example/g</guid><link>/one</link>", "https://a.example/one"),
        ("<link/><guid>https://a.example/g</guid>", "https://a.example/g"),
        ("<guid isPermaLink='false'>https://a.example/g</guid>", None),
        # Many forget to say that it is none.
        ("<guid>4711</guid>", None),
        ("<guid>tag:a.example,2026:1</guid>", None),
        ("<guid/>", None),
    ],
)
def test_an_item_without_a_link_is_where_its_guid_leads(said, url):
    body = f"<rss><channel><item>{said}</item></channel></rss>".encode()
    found = [ping.url for ping in pings_of(TOPIC, body, NOW, EVER)]
    assert found == [TOPIC, *([url] if url else [])]


@pytest.mark.parametrize("feed", [RSS, ATOM])
def test_a_character_in_two_halves_keeps_no_entry_out(feed):
    body = feed.replace(b"<link", b"<title>Up &#55357;&#56960;</title><link")
    assert pings_of(TOPIC, body, NOW, EVER) == pings_of(TOPIC, feed, NOW, EVER)


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
    assert [ping.url for ping in pings_of(TOPIC, body, NOW, EVER)] == [TOPIC]


@pytest.mark.parametrize(
    ("written", "at"),
    [
        # Of the day after, by a zone that was mistaken: now. Years to come say nothing.
        ("2033-05-18T23:00:00Z", NOW),
        ("9000-01-01T00:00:00Z", None),
        # At some time of a day: at its end, or now. Its beginning may be before the last crawl.
        ("2033-05-18", NOW),
        ("2033-05-17", 1_999_987_200.0),
    ],
)
def test_times_of_entries_count_as_those_of_feeds_that_are_polled(written, at):
    body = f"<feed><entry><link href='/a'/><updated>{written}</updated></entry></feed>".encode()
    assert pings_of(TOPIC, body, NOW, EVER)[1].observed_at == at


def test_only_so_many_entries_count():
    many = b"".join(b"<entry><link href='/%d'/></entry>" % n for n in range(2 * MOST_ENTRIES))
    assert len(pings_of(TOPIC, b"<feed>%s</feed>" % many, NOW, EVER)) == MOST_ENTRIES + 1


def test_old_entries_that_a_hub_sends_each_time_are_no_news():
    entry = "<entry><link href='/{}'/><updated>2033-05-{}T00:00:00Z</updated></entry>"
    body = f"<feed>{entry.format('new', 17)}{entry.format('old', 10)}</feed>".encode()
    week = [ping.url for ping in pings_of(TOPIC, body, NOW, 7 * 86_400.0)]
    assert week == [TOPIC, "https://a.example/new"]
    assert len(pings_of(TOPIC, body, NOW, 9 * 86_400.0)) == 3


@pytest.mark.parametrize(
    ("encoding", "title"),
    [
        *(("EUC-JP", "日誌"), ("Shift_JIS", "表日誌"), ("GBK", "博客"), ("gb2312", "博客")),
        *(("Big5", "部落格"), ("EUC-KR", "블로그"), ("UTF-16", "Блог"), ("windows-1251", "Блог")),
    ],
)
def test_content_may_be_in_any_encoding_that_it_declares(encoding, title):
    body = f'<?xml version="1.0" encoding="{encoding}"?><rss><channel><title>{title}</title>'
    body += "<item><link>/one</link></item></channel></rss>"
    found = [ping.url for ping in pings_of(TOPIC, body.encode(encoding), NOW, EVER)]
    assert found == [TOPIC, "https://a.example/one"]


def test_a_character_that_cannot_be_read_costs_no_entry_but_its_own():
    body = b"<rss><channel><title>Caf\xe9</title><item><link>/caf\xe9</link></item>"
    body += b"<item><link>/one</link></item></channel></rss>"
    found = [ping.url for ping in pings_of(TOPIC, body, NOW, EVER)]
    assert found == [TOPIC, "https://a.example/one"]


def test_half_a_character_in_json_costs_no_entry_but_its_own():
    cut = JSON.replace(b'"url": "/one"', b'"title": "Up \\ud83d", "url": "/one"')
    assert pings_of(TOPIC, cut, NOW, EVER) == pings_of(TOPIC, JSON, NOW, EVER)
    cut = JSON.replace(b"/one", b"/one\\ud83d")
    urls = [ping.url for ping in pings_of(TOPIC, cut, NOW, EVER)]
    assert urls == [TOPIC, "https://a.example/two"]


@pytest.mark.parametrize(
    ("feed", "entry", "link", "url"),
    [
        ("https://a.example/x/", "", "one", "https://a.example/x/one"),
        ("/x/", "", "one", "https://a.example/x/one"),
        ("https://a.example/x/", "y/", "one", "https://a.example/x/y/one"),
        ("x/", "https://b.example/", "/one", "https://b.example/one"),
        ("https://a.example/x/", "", "https://a.example/one", "https://a.example/one"),
        ("http://[", "/y/", "one", "https://a.example/y/one"),
        ("", "", "one", "https://a.example/one"),
    ],
)
def test_links_are_from_the_base_that_a_feed_gives_them(feed, entry, link, url):
    atom = '<feed xml:base="{}"><entry xml:base="/other/"/><entry xml:base="{}">{}</entry></feed>'
    rss = '<rss xml:base="{}"><item xml:base="/other/"/><item xml:base="{}">{}</item></rss>'
    for text, said in ((atom, f'<link href="{link}"/>'), (rss, f"<link>{link}</link>")):
        body = text.format(feed, entry, said).encode()
        assert [ping.url for ping in pings_of(TOPIC, body, NOW, EVER)] == [TOPIC, url]


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_content_makes_its_reading_fail(body):
    assert pings_of(TOPIC, body, NOW, EVER)[0].url == TOPIC


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


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("<http://[x>; rel=hub", b""),
        ("<https://h.example/\udcff>; rel=hub", b""),
        ("", b'<feed><link rel="hub" href="http://[x"/></feed>'),
        ("", b'<feed><link rel="hub" href="https://h.example/\x00"/></feed>'),
        ("", "<feed><link rel='hub' href='//\u2100.example/'/></feed>".encode()),
        ("", b"<![nothing[<link rel=hub href=/hub>"),
        ("", b'<link rel=hub href="&#%s;">' % (b"9" * 5000)),
    ],
)
def test_a_hub_that_is_no_url_or_behind_broken_text_is_none(header, body):
    assert discover(TOPIC, [header], body) is None


def test_a_topic_whose_own_name_is_no_url_goes_by_its_address():
    for own in ("http://[x", "/\udcff", "/\x00", "javascript:1", "http://u:p@a.example/"):
        found = discover(TOPIC, [f"</hub>; rel=hub, <{own}>; rel=self"], b"")
        assert found == Topic("https://a.example/hub", TOPIC)


@given(st.text(max_size=200), st.binary(max_size=200))
def test_no_topic_makes_discovery_fail(header, body):
    discover(TOPIC, [header], body)
