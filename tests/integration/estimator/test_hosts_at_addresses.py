"""Where hosts are, as crawlers say: it is there for whoever loads them, and people are shown it."""

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, crawl, upsert

from services.scheduler.flow.loading import build_shard, shard_rules
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.runtime.clock import ManualClock
from shared.store.explain import explain_page
from shared.store.host_listing import read_host
from shared.store.snapshot import load_shard
from shared.views.hosts import described

URL = URLS[0]
HOST = identify(URL).host
ONE, OTHER = "203.0.113.7", "2001:db8::7"


@pytest.fixture
def url(settings):
    return settings.database_url.get_secret_value()


def group_of_scheduler(settings, url):
    """As a shard that a scheduler loads has it."""
    snapshot = load_shard(url, shard_of(HOST, SHARDS))
    shard = build_shard(snapshot, shard_rules(settings, ManualClock(NOW)))
    return shard.groups.named(shard.hosts.find(HOST))


def stored(url):
    with psycopg.connect(url) as connection:
        query = "SELECT named_group, named_since FROM hosts WHERE host = %s"
        return connection.execute(query, (HOST,)).fetchone()


async def test_an_address_outlives_estimators_and_reaches_schedulers(settings, start, kafka, url):
    first = await start(kafka)
    await first.handle(kafka.batch(upsert(URL)))
    assert stored(url) == (None, float("-inf"))
    assert group_of_scheduler(settings, url) is None
    await first.handle(kafka.batch(crawl(URL, NOW, "unchanged", group=ONE)))
    assert stored(url) == (ONE, NOW)
    assert group_of_scheduler(settings, url) == ONE
    # Who takes the shard over knows since when, and goes on from there.
    again = await start(kafka)
    await again.handle(kafka.batch(crawl(URL, NOW + DAY / 2, "unchanged", group=OTHER)))
    assert stored(url) == (ONE, NOW)
    await again.handle(kafka.batch(crawl(URL, NOW + DAY, "unchanged", group=OTHER)))
    assert stored(url) == (OTHER, NOW + DAY)
    assert group_of_scheduler(settings, url) == OTHER
    assert kafka.refused == []


async def test_people_are_shown_where_a_host_is(start, kafka, url):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    await handler.handle(kafka.batch(crawl(URL, NOW, "unchanged", group=ONE)))
    assert described(read_host(url, HOST), 1.0, NOW)["named_group"] == ONE
    assert explain_page(url, URL)["host"]["named_group"] == ONE
    assert explain_page(url, URLS[1])["host"]["named_group"] is None


async def test_of_a_host_that_is_erased_nobody_knows_where_it_was(settings, start, kafka, url):
    handler = await start(kafka)
    await handler.handle(kafka.batch(upsert(URL)))
    await handler.handle(kafka.batch(crawl(URL, NOW, "unchanged", group=ONE)))
    gone = PageUpdate("remove", URL, updated_at=NOW + 1, for_good=True, whole_host=True)
    back = PageUpdate("upsert", URL, updated_at=NOW + 2)
    await handler.handle(kafka.batch(gone))
    await handler.handle(kafka.batch(back))
    assert stored(url) == (None, float("-inf"))
    assert group_of_scheduler(settings, url) is None
