"""Addresses that robots.txt forbids, or that nobody can say of whether it does: they are looked at
again, though the document that names them never changes."""

import math
from types import SimpleNamespace

import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from deploy.local.process import free_port
from services.poller.sites import polling, robots_book
from services.poller.sites.looking_again import UNKNOWN_SECONDS
from services.poller.sites.polling import SitePoller
from shared.runtime.fetching import Fetched, Fetcher, FetchFailed
from shared.runtime.settings import Settings
from shared.store.watched import DueSource, note_quiet, note_reading

DAY = 86_400.0
FORBIDS = b"User-agent: *\nDisallow: /private\n"


class Site:
    """A site with one sitemap, other hosts beside it, and what the poller has stored of it."""

    def __init__(self, port: int) -> None:
        self.now = 1_700_000_000.0
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"
        self.robots = b""
        self.urls = [f"{self.url}/open", f"{self.url}/private/a"]
        self.answers: list[int] = []
        """To questions for the sitemap."""
        self.asked: list[str] = []
        """robots.txt of other hosts, by where they were asked for."""
        self.away: set[str] = set()
        self.pages: list[str] = []
        self.signals: list[str] = []
        self.dates: dict[str, str] = {}
        """Of some URLs of the sitemap."""
        self.fetcher = Fetcher(allow_private=True)
        settings = Settings(poller_host_gap_seconds=0.0, poller_longest_seconds=DAY)
        self.poller = SitePoller(settings, self, self)
        self.poller._questions = self.poller._prices = self
        self.poller._not_known = self.not_known
        self.due = DueSource(
            *(f"{self.url}/sitemap.xml", f"{self.url}/", self.host, "site:a", "", "robots"),
            *("", "", b"", b"", 0.0, 0, -math.inf, False, 0.0, 0.0, 0.0, [self.host], [], []),
        )

    async def answer(self, request):
        if request.path == "/robots.txt":
            return web.Response(body=self.robots)
        body = "".join(
            f"<url><loc>{url}</loc><lastmod>{self.dates.get(url, '')}</lastmod></url>"
            for url in self.urls
        )
        etag = f'"{hash(body)}"'
        status = 304 if request.headers.get("If-None-Match") == etag else 200
        self.answers.append(status)
        text = None if status == 304 else f"<urlset>{body}</urlset>"
        return web.Response(status=status, text=text, headers={"ETag": etag})

    async def get(self, url, **more):
        """As the poller's fetcher: the site is there, others are away or forbid nothing."""
        if self.host in url:
            return await self.fetcher.get(url, **more)
        self.asked.append(url)
        if url in self.away:
            raise FetchFailed("it cannot be reached")
        return Fetched(url, 404, CIMultiDictProxy(CIMultiDict()), b"")

    async def ask(self, question, *arguments):
        """As the database."""
        if question is note_reading:
            _, reading, pace = arguments
            self.due = self.due._replace(
                kind=reading.kind, etag=reading.etag, digest=reading.digest, seen=reading.seen
            )
        elif question is note_quiet:
            _, _, pace, etag, _ = arguments
            self.due = self.due._replace(etag=etag)
        self.due = self.due._replace(interval_seconds=pace.interval_seconds)

    async def of_slot(self):
        return 0.0

    async def not_known(self, pages):
        return [page for page in pages if page.url not in self.pages]

    async def publish(self, source, pings, shown_as):
        self.signals += [ping.url for ping in pings]

    async def publish_pages(self, pages):
        self.pages += [page.url for page in pages]

    async def poll(self, after=0.0) -> list[str]:
        """New pages of a poll, so many seconds after the last one."""
        self.now += after
        before = len(self.pages)
        await self.poller._read(self.due)
        return self.pages[before:]


@pytest.fixture
async def site(monkeypatch):
    made = Site(port := free_port())
    runner = web.ServerRunner(web.Server(made.answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    monkeypatch.setattr(polling, "WALL", SimpleNamespace(now=lambda: made.now))
    monkeypatch.setattr(robots_book, "time", SimpleNamespace(monotonic=lambda: made.now))
    await made.fetcher.start()
    yield made
    made.poller._feeds.stop()
    made.poller._shared.stop()
    await made.fetcher.stop()
    await runner.cleanup()


async def test_what_is_allowed_later_is_found_in_a_sitemap_that_says_the_same(site):
    site.robots = FORBIDS
    assert await site.poll() == [f"{site.url}/open"]
    site.robots = b""
    found = [await site.poll(after=DAY / 4) for _ in range(8)]
    # Rules are believed for a day; then they are asked for anew.
    assert found.index([f"{site.url}/private/a"]) == 3
    assert [url for urls in found for url in urls] == [f"{site.url}/private/a"]


async def test_a_site_that_forbids_for_ever_is_read_whole_once_a_day_and_one_that_does_not_never(
    site,
):
    site.robots = FORBIDS
    for _ in range(12):
        await site.poll(after=DAY / 4)
    assert site.answers == [200, 304, 304, 304] * 3
    site.robots, site.answers = b"", []
    for _ in range(12):
        await site.poll(after=DAY / 4)
    assert site.answers == [200] + [304] * 11


async def test_rules_are_asked_for_where_each_address_is_and_once(site):
    site.due = site.due._replace(hosts=[site.host, "b.example", "c.example:8443", "d.example"])
    others = ["http://b.example/1", "https://b.example/2", "https://c.example:8443/"]
    site.urls = [*others, "https://b.example/3", "https://elsewhere.example/"]
    assert sorted(await site.poll()) == sorted([*others, "https://b.example/3"])
    assert sorted(site.asked) == [
        "http://b.example/robots.txt",
        "https://b.example/robots.txt",
        "https://c.example:8443/robots.txt",
    ]


async def test_a_host_whose_rules_cannot_be_had_keeps_its_own_addresses_waiting_and_no_others(
    site,
):
    away = "https://b.example/robots.txt"
    site.due = site.due._replace(hosts=[site.host, "b.example"])
    site.urls = [f"{site.url}/open", "https://b.example/1"]
    site.away = {away}
    assert await site.poll() == [f"{site.url}/open"]
    # It is asked again now and then, and a sitemap that says the same is not read each time.
    for _ in range(6):
        assert await site.poll(after=UNKNOWN_SECONDS / 3) == []
    assert site.answers == [200, 304, 304, 200, 304, 304, 200]
    assert site.asked == [away] * 3
    site.away.clear()
    found = [await site.poll(after=UNKNOWN_SECONDS / 3) for _ in range(6)]
    assert found == [[], [], ["https://b.example/1"], [], [], []]
    assert site.answers[-3:] == [304] * 3


@pytest.mark.parametrize("why", ["disallowed", "unknown", "late"])
async def test_what_the_first_reading_left_out_is_no_signal_when_it_is_let_in(
    site, monkeypatch, why
):
    page = f"{site.url}/private/a" if why == "disallowed" else "https://b.example/1"
    site.due = site.due._replace(hosts=[site.host, "b.example"])
    site.urls, site.dates = [page], {page: "2023-11-14T20:00:00Z"}
    site.robots = FORBIDS
    site.away = {"https://b.example/robots.txt"} if why == "unknown" else set()
    with monkeypatch.context() as patched:
        if why == "late":
            patched.setattr(polling, "JUDGED_SECONDS", -1.0)
        assert await site.poll() == []
    site.robots = b""
    site.away.clear()
    assert await site.poll(after=DAY) == [page]
    assert site.signals == []
    # Its next date is one.
    site.dates[page] = "2023-11-15T22:00:00Z"
    assert await site.poll(after=DAY) == []
    assert site.signals == [page]


async def test_a_time_that_was_noted_while_a_clock_was_wrong_puts_nothing_off(site):
    site.robots = FORBIDS
    site.now += 1000 * DAY
    await site.poll()
    site.robots = b""
    site.now -= 1000 * DAY
    site.poller._robots._known.clear()
    assert await site.poll() == [f"{site.url}/private/a"]


async def test_a_robots_txt_that_takes_long_to_ask_is_asked_about_some_at_a_time(site, monkeypatch):
    site.urls = [f"{site.url}/{number}" for number in range(24)]
    spent = iter(range(1_000))  # each look at the clock is a second later
    monkeypatch.setattr(polling, "time", SimpleNamespace(thread_time=lambda: float(next(spent))))
    found = [len(await site.poll(after=UNKNOWN_SECONDS)) for _ in range(6)]
    some = int(polling.JUDGED_SECONDS) - 1
    assert found == [some, some, 24 - 2 * some, 0, 0, 0]
    assert sorted(site.pages) == sorted(site.urls)
