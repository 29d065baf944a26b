"""What is stored when: the poller's own loop, with a broker that a test holds back."""

import asyncio
import contextlib
import time

import pytest
from aiohttp import web
from pydantic import SecretStr
from sites import date, sitemap

from services.poller.sites.polling import SitePoller
from shared.runtime.fetching import Fetcher
from shared.runtime.settings import Settings
from shared.store.connection import connect
from shared.store.watched import NewSource, Site, add_site, add_sources, list_sources

pytestmark = [pytest.mark.postgres, pytest.mark.slow(8)]

MAP = "/sitemap.xml"


class Broker:
    """Has what it has acknowledged, and acknowledges while it is let."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.asked = asyncio.Event()
        self.pages: set[str] = set()
        self.signals: set[tuple[str, str]] = set()

    async def publish(self, source, pings, shown_as):
        if pings:
            self.asked.set()
            await self.answers.wait()
            self.signals |= {(source, ping.url) for ping in pings}

    async def publish_pages(self, pages):
        if pages:
            self.asked.set()
            await self.answers.wait()
            self.pages |= {page.url for page in pages}


@pytest.fixture
def settings(migrated_url):
    return Settings(
        database_url=SecretStr(migrated_url),
        partitions=4,
        poller_shortest_seconds=0.2,
        poller_longest_seconds=0.5,
        poller_host_gap_seconds=0.0,
        poller_fetch_seconds=1.0,
    )


def watch(settings, *urls):
    url = settings.database_url.get_secret_value()
    with connect(url, "test", autocommit=True) as connection:
        hosts = sorted({url.split("/")[2] for url in urls})
        add_site(connection, Site("https://a.example/", hosts, [], []))
        found = [NewSource(u, u.split("/")[2], f"site:{u}", "", "operator") for u in urls]
        add_sources(connection, "https://a.example/", found)


def rows(settings):
    with connect(settings.database_url.get_secret_value(), "test") as connection:
        return {row.url: row for row in list_sources(connection)}


@contextlib.asynccontextmanager
async def running(settings, broker, *, allow_private=True):
    """A poller that is cut off in the end, as by a crash."""
    fetcher = Fetcher(allow_private=allow_private, seconds=settings.poller_fetch_seconds)
    await fetcher.start()
    poller = SitePoller(settings, fetcher, broker)
    run = asyncio.ensure_future(poller.run())
    try:
        yield
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        poller.stop()
        await fetcher.stop()


async def until(condition):
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "it never comes"
        await asyncio.sleep(0.05)


async def test_where_a_sitemap_stands_is_stored_when_the_broker_has_all_of_it(settings, site):
    now = time.time()
    url = site.url + MAP
    watch(settings, url)
    site.put(MAP, sitemap([(site.page(n), date(now - 900)) for n in range(3)]))
    for moved in (False, True):
        if moved:
            site.put(MAP, sitemap([(site.page(n), date(now - 100)) for n in range(3)]))
        broker = Broker()
        before = rows(settings)[url]
        async with running(settings, broker):
            await broker.asked.wait()
        # Killed while the broker had not answered.
        after = rows(settings)[url]
        assert (after.pages, after.signals) == (before.pages, before.signals)
        broker.answers.set()
        async with running(settings, broker):
            await site.asked(MAP, 304)
        if moved:
            assert broker.signals == {(f"site:{url}", site.page(n)) for n in range(3)}
        else:
            assert broker.pages == {site.page(n) for n in range(3)}


async def test_a_host_that_asks_for_a_pause_gets_it_and_others_are_read(settings, site):
    watch(settings, site.url + MAP, f"{site.url}/b.xml", f"http://localhost:{site.port}/c.xml")
    asked = []

    async def answer(request):
        asked.append((request.host.partition(":")[0], request.path))
        if request.path == "/robots.txt" or request.host.startswith("localhost"):
            return web.Response(status=404)
        return web.Response(status=429, headers={"Retry-After": "3600"})

    site.answering = answer

    def maps():
        return [path for host, path in asked if host == "127.0.0.1" and path.endswith(".xml")]

    async def read_the_other(times):
        before = asked.count(("localhost", "/c.xml"))
        await until(lambda: asked.count(("localhost", "/c.xml")) >= before + times and maps())

    async with running(settings, Broker()):
        await read_the_other(3)
    assert len(maps()) == 1
    failing = rows(settings)[site.url + maps()[0]]
    assert (failing.failures, failing.reason) == (1, "it answers 429")
    assert failing.next_poll_at > time.time() + 3000
    # Who starts anew does not know of the pause, but when each file is due.
    async with running(settings, Broker()):
        await read_the_other(3)
        await until(lambda: len(maps()) > 1)
        await read_the_other(3)
    assert sorted(maps()) == ["/b.xml", MAP]


async def test_private_addresses_are_not_asked(settings, site):
    watch(settings, site.url + MAP)
    async with running(settings, Broker(), allow_private=False):
        await until(lambda: rows(settings)[site.url + MAP].failures >= 1)
    assert "not on the public internet" in rows(settings)[site.url + MAP].reason
    assert not site.answers
