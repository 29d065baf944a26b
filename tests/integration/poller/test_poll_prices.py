"""What the poller knows of the price of a poll, from the database and under its own role."""

import math
import time
import uuid

import numpy as np
import psycopg
import pytest
from page_batches import page_batch
from pydantic import SecretStr
from sites import date, sitemap

from services.poller.sites import prices
from services.poller.sites.polling import SitePoller
from services.poller.sites.prices import Prices
from shared.contracts.identity import identify
from shared.discovery.looking import source_of
from shared.policy.polls import PollRecord, signal_worth
from shared.runtime.databases import databases_of
from shared.runtime.fetching import Fetcher
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.imports import import_pages
from shared.store.questions import SharedQuestions
from shared.store.watched import NewSource, Site, add_site, add_sources, list_sources

pytestmark = pytest.mark.postgres

MAP = "/sitemap.xml"


@pytest.fixture
def owner(migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def settings(migrated_url, owner):
    user = f"poller_{uuid.uuid4().hex[:8]}"
    owner.execute(f"CREATE ROLE {user} LOGIN IN ROLE freshet_poller")
    url = SecretStr(migrated_url.replace("postgres@", f"{user}@", 1))
    made = {"partitions": 4, "allow_private_hosts": True, "poller_host_gap_seconds": 0.0}
    yield load_settings().model_copy(update=made | {"database_url": url})
    owner.execute(f"DROP ROLE {user}")


@pytest.fixture
def asked(settings):
    questions = SharedQuestions(databases_of(settings), "poller")
    yield Prices(settings, questions)
    questions.stop()


def decide(owner, multiplier, slot_value=None):
    owner.execute(
        "INSERT INTO multiplier_history (version, computed_at, effective_at, multiplier, "
        "crawls_per_second, cause, slot_value) VALUES (1, 0, 0, %s, 1, 'start', %s)",
        (multiplier, slot_value),
    )


def have(migrated_url, owner, urls, importance):
    crawled_at = np.full(len(urls), time.time())
    pages = page_batch(urls, importance=np.array(importance), crawled_at=crawled_at)
    import_pages(migrated_url, 4, [pages], now=time.time())
    owner.execute("UPDATE pages SET unsignalled_change_rate = 0.1, signal_evidence = 2")


async def test_the_price_is_by_the_last_decision_and_asked_for_rarely(owner, asked):
    assert await asked.of_slot() == 0.0
    decide(owner, 0.5)
    decide(owner, 0.25)
    assert await asked.of_slot() == 0.0
    asked._asked_at -= prices.FRESH_SECONDS
    assert await asked.of_slot() == 0.25


@pytest.mark.parametrize(("slot_value", "price"), [(None, 4.0), (1.5, 1.5), (9.0, 4.0), (0.0, 0.2)])
async def test_a_slot_is_worth_what_crawls_buy_now_and_no_more_than_in_the_long_run(
    owner, asked, slot_value, price
):
    decide(owner, 4.0, slot_value)
    assert await asked.of_slot() == price


async def test_pages_are_worth_what_is_learned_of_them_and_new_ones_as_much(
    owner, migrated_url, asked
):
    urls = [f"https://h{n}.example/" for n in range(6)]
    have(migrated_url, owner, urls, [1.0, 2.0, 4.0, 8.0, 16.0, 0.001])
    known = signal_worth([1.0, 2.0, 4.0, 8.0, 16.0, 0.001], 0.1, 2.0, 0.0, 0.5)
    pages = [identify(url) for url in urls]
    assert await asked.worth_of(pages, 0.5) == pytest.approx(known.sum(), rel=1e-6)
    assert known[5] == 0.0 < known[0]
    new = [identify(f"https://new.example/{n}") for n in range(6)]
    both = await asked.worth_of(pages + new, 0.5)
    assert both == pytest.approx(2.0 * known.sum(), rel=1e-6)
    assert await asked.worth_of(new, 0.5) == await asked.worth_of([], 0.5) == 0.0


async def test_who_may_not_ask_reads_by_what_comes(owner, migrated_url, asked, caplog):
    decide(owner, 0.5)
    owner.execute("REVOKE SELECT ON multiplier_history, page_estimates FROM freshet_poller")
    assert await asked.of_slot() == 0.0
    assert await asked.worth_of([identify("https://a.example/")], 0.5) is None


class Nowhere:
    async def publish(self, source, pings, shown_as):
        """Nobody reads it."""

    async def publish_pages(self, pages):
        """Nor this."""


async def read_once(settings, url):
    fetcher = Fetcher(allow_private=True)
    await fetcher.start()
    poller = SitePoller(settings, fetcher, Nowhere())
    try:
        [due] = await poller._questions.ask(_due)
        await poller._read(due)
    finally:
        poller.stop()
        await fetcher.stop()


def _due(connection):
    from shared.store.watched import take_due_sources

    return take_due_sources(connection, time.time(), 1, (), 0.0, 1e9)


async def test_a_source_goes_by_value_once_it_was_watched_for_a_day(
    settings, owner, migrated_url, site
):
    url = f"{site.url}{MAP}"
    now = time.time()
    with connect(migrated_url, "test", autocommit=True) as connection:
        add_site(connection, Site(f"{site.url}/", [site.host], [], []))
        add_sources(
            connection, f"{site.url}/", [NewSource(url, site.host, source_of(url), "", "operator")]
        )
    have(migrated_url, owner, [site.page(n) for n in range(3)], [10.0, 10.0, 10.0])
    decide(owner, 0.5)
    settings = settings.model_copy(update={"poller_longest_seconds": 1e7})
    site.put(MAP, sitemap([(site.page(n), date(now - 5000)) for n in range(3)]))
    await read_once(settings, url)
    [row] = list_sources(owner)
    assert (row.by_value, row.interval_seconds, row.polls) == (False, 3600.0, 1)
    # Two days later, two of its pages have moved.
    owner.execute(
        "UPDATE watched_sources SET polled_at = polled_at - 172800, next_poll_at = '-infinity'"
    )
    moved = [(site.page(n), date(now - 60)) for n in range(2)]
    site.put(MAP, sitemap([*moved, (site.page(2), date(now - 5000))]))
    await read_once(settings, url)
    [row] = list_sources(owner)
    worth = float(signal_worth(10.0, 0.1, 2.0, 0.0, 0.5)[0])
    days = math.sqrt(2.0 * 0.5 / PollRecord(2 * worth, 2.0, 2.0).worth_a_day(0.5))
    assert row.by_value
    assert row.polls == 2
    assert row.interval_seconds == pytest.approx(days * 86_400.0, rel=1e-3)
    # Ten days later it says nothing new: it is read ever more rarely.
    owner.execute(
        "UPDATE watched_sources SET polled_at = polled_at - 864000, next_poll_at = '-infinity'"
    )
    await read_once(settings, url)
    [later] = list_sources(owner)
    assert later.by_value
    assert later.interval_seconds > 2.0 * row.interval_seconds
