"""Servers that send packed what was not asked for packed, as they do with objects stored so."""

import gzip
import zlib

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.contracts.identity import identify
from shared.discovery.looking import look_at
from shared.discovery.robots import fetch_robots
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.runtime.unpacking import MOST_JOINED

TEXT = b"User-agent: *\nDisallow: /private\n"
BROTLI = b"\x0b\x02\x80text\x03"
BOMB = gzip.compress(b"x" * 50_000_000)
MOST = 100_000


class Sender:
    """Sends to a fetcher what a test sets."""

    def __init__(self) -> None:
        self.body, self.encoding, self.status = TEXT, "", 200
        self.url = ""
        self.asked = []
        self.fetcher = Fetcher(allow_private=True)

    async def answer(self, request):
        self.asked.append(request.path)
        headers = {"Content-Encoding": self.encoding} if self.encoding else {}
        return web.Response(status=self.status, body=self.body, headers=headers)

    async def got(self, *, cut=False, take=None):
        return await self.fetcher.get(
            self.url, max_bytes=MOST, may_follow=lambda _, target: True, cut=cut, take=take
        )


@pytest.fixture
async def sender():
    made = Sender()
    server = TestServer(web.Application())
    server.app.router.add_route("*", "/{any:.*}", made.answer)
    await server.start_server()
    await made.fetcher.start()
    made.url = str(server.make_url("/"))
    yield made
    await made.fetcher.stop()
    await server.close()


each_packing = pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", gzip.compress(TEXT), id="gzip"),
        pytest.param("X-GZIP", gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), id="joined"),
        pytest.param("deflate", zlib.compress(TEXT), id="deflate"),
        pytest.param("identity", TEXT, id="identity"),
        # What follows and is not packed, as where blocks are filled up, is nothing.
        pytest.param("gzip", gzip.compress(TEXT) + b"\0", id="filled-up"),
    ],
)


@each_packing
async def test_what_comes_packed_is_read_as_what_it_is(sender, encoding, body):
    sender.encoding, sender.body = encoding, body
    assert (await sender.got()).body == TEXT


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        ("br", BROTLI, "'br'"),
        ("gzip, gzip", gzip.compress(gzip.compress(TEXT)), "'gzip, gzip'"),
        ("gzip", TEXT, "not packed as it says"),
        ("gzip", gzip.compress(TEXT)[:-1], "broken off"),
        ("gzip", gzip.compress(b"") * (MOST_JOINED + 1), "are joined"),
    ],
    ids=["other", "twice", "plain", "broken", "joined"],
)
async def test_what_cannot_be_unpacked_is_no_text(sender, encoding, body, reason):
    sender.encoding, sender.body = encoding, body
    with pytest.raises(FetchFailed, match=reason):
        await sender.got()
    # Of what is an error anyway nobody reads more than that it is one; nor of what is empty.
    sender.status = 404
    assert (await sender.got()).status == 404
    sender.status, sender.body = 200, b""
    sent = await sender.fetcher.post(sender.url, {}, max_bytes=MOST, may_follow=lambda *_: False)
    assert sent.status == 200


async def test_of_what_is_huge_when_it_is_unpacked_the_beginning_is_read_or_nothing(sender):
    sender.encoding, sender.body = "gzip", BOMB
    with pytest.raises(FetchFailed, match=f"more than {MOST} bytes"):
        await sender.got()
    assert (await sender.got(cut=True)).body == b"x" * MOST


async def test_who_takes_it_as_it_comes_gets_it_packed_and_only_as_gzip(sender):
    parts = []

    async def take(part):
        parts.append(part)

    sender.encoding, sender.body = "gzip", gzip.compress(TEXT)
    await sender.got(take=take)
    assert b"".join(parts) == sender.body
    sender.encoding = "br"
    with pytest.raises(FetchFailed, match="'br'"):
        await sender.got(take=take)


@each_packing
async def test_a_packed_robots_txt_forbids_what_it_forbids(sender, encoding, body):
    sender.encoding, sender.body = encoding, body
    robots = await fetch_robots(sender.fetcher, sender.url, "Freshet")
    assert not robots.allows(f"{sender.url}private/a")
    assert robots.allows(f"{sender.url}open")


async def test_a_robots_txt_that_cannot_be_unpacked_allows_nothing_and_one_that_is_missing_all(
    sender,
):
    sender.encoding, sender.body = "br", BROTLI
    with pytest.raises(FetchFailed):
        await fetch_robots(sender.fetcher, sender.url, "Freshet")
    sender.status = 404
    assert (await fetch_robots(sender.fetcher, sender.url, "Freshet")).allows(sender.url)


async def test_a_site_whose_robots_txt_cannot_be_unpacked_is_asked_for_nothing_more(sender):
    sender.encoding, sender.body = "br", BROTLI
    found = await look_at(sender.fetcher, identify(sender.url), "Freshet")
    assert (found.sources, sender.asked) == ({}, ["/", "/robots.txt"])
