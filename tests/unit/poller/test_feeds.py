"""Feeds as sites write them, and one that would keep the reader busy for minutes."""

import pytest

from services.poller.sites.documents import Document
from services.poller.sites.entries import BadDocument, Entry
from services.poller.sites.feed_process import FEED_BYTES, FeedProcess
from services.poller.sites.feeds import read_feed

URL = "https://a.example/blog/feed"
RSS = b"""<?xml version="1.0" encoding="iso-8859-1"?><rss version="2.0"><channel><title>\xe9</title>
<ttl>90</ttl>
<item><link>https://a.example/1</link><pubDate>Fri, 02 Jan 2026 03:04:05 GMT</pubDate></item>
<item><link>/2?x=1&amp;y=2</link></item><item><title>no link</title></item>
<item><guid isPermaLink="true">https://a.example/3</guid></item></channel></rss>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><link rel="self" href="/feed"/>
<entry><link rel="edit" href="/edit/1"/><link href="1"/><published>2026-01-01T00:00:00Z</published>
<updated>2026-01-02T03:04:05+01:00</updated></entry></feed>"""
RDF = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel/>
<item><link>https://a.example/1</link><dc:date>2026-01-02</dc:date></item></rdf:RDF>"""
JSON = b"""{"version": "https://jsonfeed.org/version/1.1", "items": [
{"id": "1", "url": "1", "date_modified": "2026-01-02T00:00:00Z", "date_published": "2026-01-01"},
{"id": "2", "url": "/2", "date_published": "2026-01-01"}, {"id": "3"}, 4]}"""


@pytest.mark.parametrize(
    ("text", "entries", "hint"),
    [
        (
            RSS,
            [
                ("https://a.example/1", "Fri, 02 Jan 2026 03:04:05 GMT"),
                ("https://a.example/2?x=1&y=2", ""),
                ("https://a.example/3", ""),
            ],
            5400.0,
        ),
        (ATOM, [("https://a.example/blog/1", "2026-01-02T03:04:05+01:00")], None),
        (RDF, [("https://a.example/1", "2026-01-02")], None),
        (
            JSON,
            [
                ("https://a.example/blog/1", "2026-01-02T00:00:00Z"),
                ("https://a.example/2", "2026-01-01"),
            ],
            None,
        ),
    ],
)
def test_feeds_of_all_kinds_name_their_pages_and_dates(text, entries, hint):
    found, summary = read_feed(URL, text)
    assert [tuple(entry) for entry in found] == entries
    assert (summary.kind, summary.hint_seconds) == ("feed", hint)


@pytest.mark.parametrize(
    ("feed", "entry", "link", "page"),
    [
        ("", "", "1", "https://a.example/blog/1"),
        ("../posts/", "", "1", "https://a.example/posts/1"),
        ("", "posts/", "1", "https://a.example/blog/posts/1"),
        ("/posts/", "2026/", "1", "https://a.example/posts/2026/1"),
        ("https://b.example/", "posts/", "1", "https://b.example/posts/1"),
        ("//b.example/posts/", "../", "1?x=1", "https://b.example/1?x=1"),
        ("http://[", "posts/", "1", "https://a.example/blog/posts/1"),
    ],
)
def test_links_are_from_where_feed_and_entry_say_each_from_where_the_other_is(
    feed, entry, link, page
):
    text = (
        f'<feed xmlns="http://www.w3.org/2005/Atom" xml:base="{feed}">'
        f'<entry xml:base="{entry}"><link href="{link}"/></entry></feed>'
    )
    assert read_feed(URL, text.encode())[0] == [(page, "")]


def test_a_link_that_says_nothing_does_not_make_the_feed_a_page():
    links = b'<entry><link href=""/></entry><entry><link href=" "/></entry><entry><link/></entry>'
    text = b'<feed xmlns="http://www.w3.org/2005/Atom">' + links + b"</feed>"
    assert read_feed(URL, text)[0] == []


@pytest.mark.parametrize("feed", [RSS, ATOM, RDF])
@pytest.mark.parametrize("written", [b"&#55357;&#56960;", b"&#xD83D;&#xDE80;", b"&#xD83D;"])
def test_a_character_in_two_halves_keeps_no_entry_out(feed, written):
    said = b"<title>Up " + written + b"</title><link"
    assert read_feed(URL, feed.replace(b"<link", said)) == read_feed(URL, feed)


@pytest.mark.parametrize("written", [rb"\ud83d", rb"\uDE80 up", rb"\ud83d\ude80", rb"\\ud83d"])
def test_half_a_character_in_json_keeps_no_entry_out(written):
    # As JavaScript writes the beginning of a text that it has cut.
    feed = JSON.replace(b'"id"', b'"title": "' + written + b'", "id"')
    assert read_feed(URL, feed) == read_feed(URL, JSON)


def test_an_address_may_have_such_a_character_and_one_that_is_written_out_is_left_as_it_is():
    item = b"<item><link>%s</link></item>"
    pair = b"https://a.example/&#55357;&#56960;"
    text = item % pair + item % (b"<![CDATA[%s]]>" % pair)
    found, _ = read_feed(URL, b'<rss version="2.0"><channel>' + text + b"</channel></rss>")
    assert [entry.url for entry in found] == ["https://a.example/\U0001f680", pair.decode()]


@pytest.mark.parametrize(
    "text",
    [
        b'{"version": "https://jsonfeed.org/version/1", "items": 1}',
        b'{"items": []}',
        b"{" * 100_000,
        b'{"\xff": 1}',
        b"<feedback/>",
    ],
)
def test_what_is_no_feed_is_refused(text):
    with pytest.raises(BadDocument):
        read_feed(URL, text)


@pytest.mark.slow(0.5)
def test_entities_are_neither_looked_up_nor_unfolded():
    declared = b"".join(
        b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10 if n else b"https://a.example/")
        for n in range(10)
    )
    file = b'<!ENTITY file SYSTEM "file:///etc/passwd">'
    text = (
        b'<?xml version="1.0"?><!DOCTYPE rss [' + declared + file + b']><rss version="2.0">'
        b"<channel><item><link>&l9;</link></item><item><link>&file;</link></item></channel></rss>"
    )
    found, _ = read_feed(URL, text)
    assert sum(len(entry.url) for entry in found) < 10_000
    assert not any("root" in entry.url for entry in found)


@pytest.fixture
def process():
    made = FeedProcess(seconds=2)
    yield made
    made.stop()


@pytest.mark.slow(5)
async def test_a_feed_that_keeps_its_reader_busy_is_given_up_and_the_next_is_read(process):
    assert len((await process.read(URL, RSS))[0]) == 3
    # Minutes in a regular expression of feedparser's, where nothing of Python's is heard.
    busy = b"<rss><channel><item><author>" + b"a" * 300_000 + b"</author></item></channel></rss>"
    with pytest.raises(BadDocument, match="more than 2 s"):
        await process.read(URL, busy)
    assert len((await process.read(URL, ATOM))[0]) == 1
    with pytest.raises(BadDocument, match="neither"):
        await process.read(URL, b"<rss2/>")


async def test_a_document_that_is_a_feed_goes_to_the_reader_of_feeds(process):
    entries: list[Entry] = []
    document = Document(URL, entries.append, process)
    document.feed(RSS[:200])
    document.feed(RSS[200:])
    document.end()
    assert (await document.close()).kind == "feed"
    assert len(entries) == 3


def test_a_feed_that_is_too_large_is_given_up(process):
    document = Document(URL, lambda _: None, process)
    with pytest.raises(BadDocument, match="the feed has more"):
        document.feed(RSS + b" " * FEED_BYTES)
