"""A site that changes, is away, lies and forbids, read by the real worker."""

import contextlib
import time
import uuid

import psycopg
import pytest
from page_batches import page_batch
from pydantic import SecretStr
from sites import atom, date, index, sitemap
from workers import reader, settings_for, worker

from shared.contracts.codec import decode
from shared.contracts.messages import PageUpdate, Signal
from shared.contracts.topics import PAGE_UPDATES, SIGNALS
from shared.discovery.looking import source_of
from shared.runtime.kafka import ensure_topics
from shared.store.connection import connect
from shared.store.imports import import_pages
from shared.store.watched import NewSource, Site, add_site, add_sources, list_sources

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow(3)]

MAP = "/sitemap.xml"


@pytest.fixture
async def settings(local_broker, migrated_url):
    # It may do what it needs to, and nothing else.
    user = f"poller_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE freshet_poller")
    made = settings_for(
        local_broker.bootstrap_servers,
        f"sites-{uuid.uuid4().hex[:8]}",
        database_url=SecretStr(migrated_url.replace("postgres@", f"{user}@", 1)),
        allow_private_hosts=True,
        poller_shortest_seconds=0.2,
        poller_longest_seconds=0.5,
        poller_host_gap_seconds=0.0,
        poller_fetch_seconds=1.0,
        poller_user_agent="Freshet (test)",
    )
    await ensure_topics(made)
    yield made
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {user}")


@pytest.fixture
def watch(migrated_url, site):
    """A function that watches some files of the site."""

    def watching(*paths, kind=""):
        _watch(migrated_url, site, paths, kind)

    return watching


def _watch(migrated_url, site, paths, kind):
    with connect(migrated_url, "test", autocommit=True) as connection:
        add_site(connection, Site(f"{site.url}/", [site.host], [], [f"{site.url}/secret/*"]))
        urls = [f"{site.url}{path}" for path in paths]
        found = [NewSource(url, site.host, source_of(url), kind, "operator") for url in urls]
        assert add_sources(connection, f"{site.url}/", found) == len(paths)


def sources(settings):
    with connect(settings.database_url.get_secret_value(), "test") as connection:
        return {row.url: row for row in list_sources(connection)}


def signals_of(records) -> list[Signal]:
    return [decode(Signal, record.value) for record in records]


def pages_of(records) -> set[str]:
    return {decode(PageUpdate, record.value).url for record in records}


@contextlib.asynccontextmanager
async def topics(settings):
    async with reader(settings, SIGNALS) as signals, reader(settings, PAGE_UPDATES) as pages:
        yield signals, pages


async def test_what_a_sitemap_says_becomes_pages_and_signals(settings, site, watch, tmp_path):
    now = time.time()
    old = [(site.page(n), date(now - 5000)) for n in range(5)]
    elsewhere = [("https://elsewhere.example/", date(now)), (f"{site.url}/secret/1", date(now))]
    site.put(MAP, sitemap([*old, *elsewhere]))
    watch(MAP)
    async with topics(settings) as (signals, pages):
        with worker("poller", settings, tmp_path) as process:
            await pages.until(lambda got: len(got) >= 5)
            await site.asked(MAP, 304)
            moved = [(site.page(2), date(now - 60)), (site.page(9), date(now - 30))]
            site.put(MAP, sitemap([*old[:2], *moved, *old[3:]]))
            await signals.until(lambda got: len(got) >= 2)
            # Once it need not be sent again, what was found in it is saved.
            await site.asked(MAP, 304)
            assert process.stop() == 0
        assert pages_of(await pages.until(lambda got: len(got) >= 6)) == {
            site.page(n) for n in (0, 1, 2, 3, 4, 9)
        }
        found = {(s.url, s.observed_at, s.source) for s in signals_of(signals.records)}
    source = f"site:{site.host}{MAP}"
    assert found == {
        (site.page(2), float(int(now - 60)), source),
        (site.page(9), float(int(now - 30)), source),
    }
    row = sources(settings)[f"{site.url}{MAP}"]
    assert (row.kind, row.entries, row.pages, row.signals) == ("sitemap", 6, 6, 2)
    assert 90 <= row.delay_seconds < 90 + 2 * 90
    assert site.agents == {"Freshet (test)"}


async def test_an_index_and_its_packed_sitemaps_are_read_and_a_feed_beside(
    settings, site, watch, tmp_path
):
    now = time.time()
    site.put("/index.xml", index([f"{site.url}/a.xml.gz", f"{site.url}/b.xml.gz"]))
    site.put("/a.xml.gz", sitemap([(site.page(1), date(now - 900))]), packed=True)
    site.put("/b.xml.gz", sitemap([(site.page(2), date(now - 900))]), packed=True)
    site.put("/feed", atom([(site.page(3), date(now - 900))]))
    watch("/index.xml", "/feed")
    async with topics(settings) as (signals, pages):
        with worker("poller", settings, tmp_path) as process:
            await pages.until(lambda got: len(got) >= 3)
            site.put("/b.xml.gz", sitemap([(site.page(2), date(now - 100))]), packed=True)
            site.put("/feed", atom([(site.page(4), date(now - 200)), (site.page(3), "")]))
            await signals.until(lambda got: len(got) >= 2)
            assert process.stop() == 0
    assert {(s.url, s.source.rpartition("/")[2]) for s in signals_of(signals.records)} == {
        # A child of an index is of its index's source.
        (site.page(2), "index.xml"),
        (site.page(4), "feed"),
    }


async def test_sitemaps_that_an_index_names_no_more_are_let_go(settings, site, watch, tmp_path):
    def put(number):
        names = [f"/{number}.xml", f"/{number + 1}.xml"]
        site.put("/index.xml", index(f"{site.url}{name}" for name in names))
        for at, name in enumerate(names):
            site.put(name, sitemap([(site.page(number + at), date(time.time() - 900))]))

    watch("/index.xml")
    with worker("poller", settings, tmp_path) as process:
        for number in range(1, 6):
            put(number)
            await site.asked(f"/{number + 1}.xml", 200)
            await site.asked("/index.xml", 304)
        assert process.stop() == 0
    paths = {url.removeprefix(site.url) for url in sources(settings)}
    # One reading of another document is not enough for it.
    assert paths == {"/index.xml", "/4.xml", "/5.xml", "/6.xml"}


async def test_robots_txt_names_sitemaps_and_forbids_pages_and_files(
    settings, site, watch, tmp_path
):
    now = time.time()
    site.put(
        "/robots.txt",
        b"User-agent: *\nDisallow: /page/1\nDisallow: /hidden.xml\nAllow: /\n"
        b"Sitemap: /sitemap.xml\nSitemap: /hidden.xml\n",
    )
    site.put(MAP, sitemap([(site.page(n), date(now - 900)) for n in (1, 2)]))
    site.put("/hidden.xml", sitemap([(site.page(3), date(now - 900))]))
    watch("/robots.txt", kind="robots")
    async with topics(settings) as (_, pages):
        with worker("poller", settings, tmp_path) as process:
            await pages.until(lambda got: len(got) >= 1)
            # What is allowed later is found later.
            site.put("/robots.txt", b"Sitemap: /sitemap.xml\n")
            site.put(MAP, sitemap([(site.page(n), date(now - 900)) for n in (1, 2, 4)]))
            await pages.until(lambda got: len(got) >= 4)
            assert process.stop() == 0
    assert pages_of(pages.records[:1]) == {site.page(2)}
    assert pages_of(pages.records) == {site.page(n) for n in (1, 2, 3, 4)}


async def test_a_source_that_is_away_is_left_alone_for_longer_and_comes_back(
    settings, site, watch, tmp_path
):
    now = time.time()
    site.put(MAP, sitemap([(site.page(1), date(now - 900))]))
    watch(MAP)
    url = f"{site.url}{MAP}"
    async with topics(settings) as (signals, pages):
        with worker("poller", settings, tmp_path) as process:
            await pages.until(lambda got: len(got) >= 1)
            site.away = True
            await site.asked(MAP, 503, times=3)
            assert sources(settings)[url].failures >= 2
            assert sources(settings)[url].reason == "it answers 503"
            site.put(MAP, sitemap([(site.page(1), date(now - 100))]))
            site.away = False
            await signals.until(lambda got: len(got) >= 1)
            await site.asked(MAP, 304)
            assert process.stop() == 0
    assert sources(settings)[url].failures == 0


async def test_a_poller_that_is_killed_in_the_middle_loses_nothing(settings, site, watch, tmp_path):
    now, count = time.time(), 400
    wanted: set[str] = set()

    def put(moved: int) -> None:
        """The first so many hundred pages have moved on."""
        at = [date(now - 9000 + (n < moved * 100) * 5000) for n in range(count)]
        site.put(MAP, sitemap([(site.page(n), at[n]) for n in range(count)]))
        wanted.update(site.page(n) for n in range(moved * 100))

    def came(records) -> set[str]:
        return {signal.url for signal in signals_of(records)}

    put(0)
    watch(MAP)
    async with topics(settings) as (signals, pages):
        with worker("poller", settings, tmp_path) as process:
            await pages.until(lambda got: len(got) >= count)
            await site.asked(MAP, 304)
            process.kill()
        for moved in range(1, 4):
            put(moved)
            with worker("poller", settings, tmp_path) as process:
                # The broker has some of them; where the sitemap stands is not stored yet, or just.
                await signals.until(lambda got: came(got) >= {site.page(moved * 100 - 1)})  # noqa: B023
                process.kill()
        with worker("poller", settings, tmp_path) as process:
            await signals.until(lambda got: came(got) >= wanted)
            await site.asked(MAP, 304)
            assert process.stop() == 0
    assert came(signals.records) == wanted
    assert {s.observed_at for s in signals_of(signals.records)} == {float(int(now - 4000))}


async def test_pages_that_are_there_are_left_alone_even_removed_ones(
    settings, site, watch, tmp_path, migrated_url
):
    site.put(MAP, sitemap([(site.page(n), "") for n in range(3)]))
    watch(MAP)
    put_page(migrated_url, site, 1)
    async with topics(settings) as (_, pages):
        with worker("poller", settings, tmp_path) as process:
            await pages.until(lambda got: len(got) >= 2)
            await site.asked(MAP, 304)
            assert process.stop() == 0
    assert pages_of(pages.records) == {site.page(0), site.page(2)}


def put_page(migrated_url, site, number):
    """A page that an operator has removed."""
    import_pages(migrated_url, 4, [page_batch([site.page(number)])], now=time.time())
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("UPDATE pages SET status = 1")
