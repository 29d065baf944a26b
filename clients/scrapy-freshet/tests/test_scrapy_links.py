"""What pages link to is told where it is wanted."""

import pytest
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy_freshet.links import MOST_LINKS, links_of
from scrapy_freshet.messages import MOST_URL_CHARACTERS

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


def test_a_page_of_a_million_links_tells_the_first():
    found = links_of(page(anchors(*(f"/{n}" for n in range(MOST_LINKS + 10)))))
    assert len(found) == MOST_LINKS
    assert found[0] == "http://a.example/0"
