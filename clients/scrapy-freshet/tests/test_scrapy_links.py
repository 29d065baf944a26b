"""What pages link to is told where it is wanted."""

import os
import resource
from urllib.parse import urldefrag

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.linkextractors import LinkExtractor, lxmlhtml
from scrapy_freshet import links
from scrapy_freshet.links import MOST_LINKS, links_of
from scrapy_freshet.messages import MOST_URL_CHARACTERS
from w3lib.url import safe_url_string

URL = "http://a.example/folder/page"


def page(body, head="", **more):
    text = f"<html><head>{head}</head><body>{body}</body></html>"
    return HtmlResponse(URL, body=text.encode(), encoding="utf-8", **more)


def anchors(*hrefs):
    return "".join(f'<a href="{href}">x</a>' for href in hrefs)


def test_links_are_absolute_without_fragments_and_each_once():
    body = anchors("/x", "y", "../z#part", "https://b.example/q?a=1", "/x#again", "//c.example/")
    assert links_of(page(body)) == [
        "http://a.example/x",
        "http://a.example/folder/y",
        "http://a.example/z",
        "https://b.example/q?a=1",
        "http://c.example/",
    ]


def test_the_base_of_the_page_counts():
    assert links_of(page(anchors("y"), '<base href="http://b.example/d/">')) == [
        "http://b.example/d/y"
    ]


def test_what_is_no_page_is_left_out():
    body = anchors("mailto:x@a.example", "javascript:void(0)", "/picture.png", "/x.zip", "/page")
    assert links_of(page(body)) == ["http://a.example/page"]
    assert links_of(page(anchors("/" + "x" * MOST_URL_CHARACTERS))) == []


def test_links_to_hosts_that_cannot_be_are_left_out_however_long_they_are_in_bytes():
    host = "".join(chr(0x4E00 + n) for n in range(1_500))
    assert links_of(page(anchors(f"http://{host}/", "http://bücher.example/"))) == [
        "http://xn--bcher-kva.example/"
    ]


def test_what_is_not_to_be_followed_is_not_told():
    body = '<a href="/no" rel="nofollow">x</a><a href="/ugc" rel="ugc nofollow">x</a>'
    assert links_of(page(body + anchors("/yes"))) == ["http://a.example/yes"]


@pytest.mark.parametrize("said", ["nofollow", "noindex, NoFollow", "none"])
def test_a_page_may_ask_that_no_link_of_it_be_followed(said):
    body = anchors("/x")
    assert links_of(page(body, f'<meta name="Robots" content="{said}">')) == []
    assert links_of(page(body, headers={"X-Robots-Tag": said})) == []
    assert links_of(page(body, '<meta name="robots" content="noindex">')) != []
    assert links_of(page(body, headers={"X-Robots-Tag": "noindex"})) != []


@pytest.mark.parametrize(
    ("said", "is_followed"),
    [
        ("index, follow, max-image-preview:none", True),
        ("max-snippet: -1, max-image-preview: none", True),
        ("nofollowed, nonesuch", True),
        ("max-snippet:-1,NoFollow", False),
        ("max-image-preview:large , none", False),
    ],
)
def test_what_a_page_asks_of_pictures_and_texts_says_nothing_of_its_links(said, is_followed):
    meta = f'<meta name="robots" content="{said}">'
    assert bool(links_of(page(anchors("/x"), meta))) is is_followed
    assert bool(links_of(page(anchors("/x"), headers={"X-Robots-Tag": said}))) is is_followed


@pytest.mark.parametrize(
    ("said", "is_followed"),
    [
        (["otherbot: noindex, nofollow"], True),
        (["otherbot: none", "noindex"], True),
        (["otherbot: noindex", "nofollow"], False),
        (["noindex, nofollow, otherbot: index"], False),
        (["otherbot: noindex, mybot: nofollow"], False),
        (["MyBot: noindex, nofollow"], False),
        (["mybot: noindex, otherbot: nofollow"], True),
        (["unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow"], False),
        (["unavailable_after: Tuesday, 25-Jun-2030 15:00:00 UTC, nofollow"], False),
        (["otherbot: max-snippet: 20, nofollow"], True),
    ],
)
def test_what_a_header_asks_of_another_crawler_says_nothing_to_this_one(said, is_followed):
    shown = page(anchors("/x"), headers={"X-Robots-Tag": said})
    assert bool(links_of(shown, "MyBot/2.0 (+https://a.example/bot)")) is is_followed


@pytest.mark.parametrize(
    "response",
    [
        Response(URL, body=b"\x00\x01"),
        TextResponse(URL, body=b"<a href='/x'>", encoding="utf-8"),
        HtmlResponse(URL, body=b"", encoding="utf-8"),
        HtmlResponse(URL, body=b"\x00<a href=", encoding="utf-8"),
    ],
)
def test_what_is_no_html_has_none(response):
    assert links_of(response) == []


@pytest.fixture
def urls_made(monkeypatch):
    """Every text of which a URL is made."""
    made = []

    def note(url, *more, **others):
        made.append(url)
        return safe_url_string(url, *more, **others)

    for module in (lxmlhtml, links):
        monkeypatch.setattr(module, "safe_url_string", note, raising=False)
    return made


def test_a_page_of_a_million_links_tells_the_first_and_makes_no_others(urls_made):
    found = links_of(page(anchors(*(f"/{n}" for n in range(2 * MOST_LINKS)))))
    assert len(found) == len(urls_made) == MOST_LINKS
    assert found[0] == "http://a.example/0"


def test_of_a_link_that_is_repeated_one_url_is_made(urls_made):
    found = links_of(page(anchors(*["/top"] * MOST_LINKS, "/last")))
    assert found == ["http://a.example/top", "http://a.example/last"]
    assert len(urls_made) == 2


@pytest.mark.slow(0.5)
def test_links_within_links_keep_no_crawler_from_the_others():
    # Each of them has all the text, of which nobody makes five gigabytes.
    body = b"<a href=/x><b>" * 1_000 + b"word " * 1_000_000
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (4, 4))  # some forty times what it takes
        os._exit(not links_of(HtmlResponse(URL, body=body, encoding="utf-8")))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


PIECES = st.sampled_from(
    [
        *("/x", "y", "?q=ä#z", "#top", "", " /spaced ", "//b.example/", "https://b.example:99999/"),
        *("http://[x", "mailto:me@a.example", "/picture.PNG", "/a.tar.gz?x", "../../up", "x.php"),
        *("HTTP://B.example/Ü", "javascript:x()", "http://", "/a b%zz", "\\x", "http://ä.example/"),
    ]
)
RELS = st.sampled_from(["", " rel=nofollow", ' rel="UGC,NoFollow"', " rel=me"])


@given(st.lists(st.tuples(st.sampled_from(["a", "area", "A", "link"]), PIECES, RELS), max_size=8))
@example([("a", "/x", " rel=nofollow"), ("a", "/x", "")])
def test_they_are_the_links_that_scrapy_finds(elements):
    text = "".join(f'<{tag} href="{href}"{rel}>x</{tag}>' for tag, href, rel in elements)
    shown = page(text, '<base href="/base/">')
    expected = (link for link in LinkExtractor().extract_links(shown) if not link.nofollow)
    assert links_of(shown) == list(dict.fromkeys(urldefrag(link.url).url for link in expected))
