"""One reading of a source: what is asked, and where what comes is from."""

import gzip
import math
from types import SimpleNamespace

import pytest
from aiohttp import web

from deploy.local.process import free_port
from services.poller.sites.feed_process import FeedProcess
from services.poller.sites.fetching import Same, fetch
from shared.discovery.busy import Busy
from shared.runtime.fetching import Fetcher
from shared.store.watched import DueSource

FEED = b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="1"/></entry></feed>'
SITEMAP = (
    b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    b"<url><loc>https://a.example/1</loc></url></urlset>"
)
NOW = 1_767_225_600.0


@pytest.fixture
async def site():
    """Its address; its answers may be set, and what it was asked is kept."""

    made = SimpleNamespace(answer=None, asked=[], url="")

    async def answering(request):
        made.asked.append((request.path, request.headers.get("If-None-Match")))
        return made.answer(request)

    runner = web.ServerRunner(web.Server(answering, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    made.url = f"http://127.0.0.1:{port}"
    yield made
    await runner.cleanup()


async def read(url, etag="", digest=b""):
    """What came of it, and its entries."""
    due = DueSource(
        *(url, "https://a.example/", "a.example", "site:a", "", "robots", etag, "", digest, b""),
        *(0.0, 0, -math.inf, False, 0.0, 0.0, 0.0, ["a.example"], [], []),
    )
    fetcher, feeds, entries = Fetcher(allow_private=True), FeedProcess(), []
    await fetcher.start()
    try:
        return await fetch(fetcher, feeds, due, entries.append, NOW), entries
    finally:
        await fetcher.stop()
        feeds.stop()


async def test_links_of_a_feed_are_from_where_it_came_in_the_end(site):
    def answer(request):
        if request.path == "/feed":
            raise web.HTTPMovedPermanently("/blog/new/feed.xml")
        return web.Response(body=FEED)

    site.answer = answer
    got, [entry] = await read(f"{site.url}/feed")
    assert got.url == f"{site.url}/blog/new/feed.xml"
    assert entry.url == f"{site.url}/blog/new/1"


async def test_who_says_the_same_under_a_new_validator_is_asked_by_that_the_next_time(site):
    def answer(request):
        current = '"rolled-out-again"'
        if request.headers.get("If-None-Match") == current:
            return web.Response(status=304)
        return web.Response(body=FEED, headers={"ETag": current})

    site.answer = answer
    got, _ = await read(f"{site.url}/feed")
    same, _ = await read(f"{site.url}/feed", '"first"', got.digest)
    assert same == Same('"rolled-out-again"', "")
    # And an answer without any leaves it as it is.
    assert (await read(f"{site.url}/feed", same.etag, got.digest))[0] == same
    assert [etag for _, etag in site.asked] == [None, '"first"', '"rolled-out-again"']


@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize("layers", [0, 1, 2])
async def test_a_packed_file_is_a_sitemap_whatever_is_said_of_its_packing(site, encoding, layers):
    # A server may pack what is a packed file, or say of a packed file that it has packed it.
    body = SITEMAP
    for _ in range(layers):
        body = gzip.compress(body)
    headers = {"Content-Type": "application/gzip"}
    headers |= {"Content-Encoding": encoding} if encoding else {}
    site.answer = lambda _: web.Response(body=body, headers=headers)
    _, [entry] = await read(f"{site.url}/sitemap.xml.gz")
    assert entry.url == "https://a.example/1"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("120", 120.0),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120.0),
        ("2026-01-01T00:02:00Z", 120.0),
        ("20260101002", None),
        ("in a while", None),
        ("1 Jan 99999999999 00:00:00", None),
        ("Thu, 01 Jan 2026 00:02:00 +99999999999999", None),
    ],
)
async def test_a_host_that_asks_for_a_pause_is_busy_however_it_says_until_when(
    site, asked, seconds
):
    site.answer = lambda _: web.Response(status=429, headers={"Retry-After": asked})
    with pytest.raises(Busy) as busy:
        await read(f"{site.url}/sitemap.xml")
    assert busy.value.seconds == seconds
