"""How many requests of a host may be open: what operators said is there for whoever loads it."""

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, crawl, upsert

from services.scheduler.flow.loading import build_shard, shard_rules
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import HostLimit
from shared.runtime.clock import ManualClock
from shared.store.explain import explain_page
from shared.store.host_listing import list_hosts, read_host
from shared.store.snapshot import load_shard

URL = URLS[0]
HOST = identify(URL).host
STRANGER = "nobody.example"
"""A host without pages."""


@pytest.fixture
def url(settings):
    return settings.database_url.get_secret_value()


def bound(number, host=HOST):
    return HostLimit(host, max_open_requests=number, only="open")


def rules_of_scheduler(settings, url, host=HOST):
    """A host's rules in a shard that a scheduler loads; None: it has none."""
    snapshot = load_shard(url, shard_of(host, SHARDS))
    hosts = build_shard(snapshot, shard_rules(settings, ManualClock(NOW))).hosts
    return hosts._rules.get(hosts.find(host))


def stored(url, host=HOST):
    with psycopg.connect(url) as connection:
        query = "SELECT max_open_requests FROM hosts WHERE host = %s"
        return connection.execute(query, (host,)).fetchone()


async def test_a_bound_outlives_estimators_and_reaches_schedulers(settings, start, kafka, url):
    first = await start(kafka)
    await first.handle(kafka.batch(upsert(URL), bound(3), bound(7, STRANGER)))
    for host, number in ((HOST, 3), (STRANGER, 7)):
        assert stored(url, host) == (number,)
        rules = rules_of_scheduler(settings, url, host)
        assert rules.effective(1.0).most_open == rules.most_open == number
    # Who takes the shard over writes the host anew, for reasons of its own.
    again = await start(kafka)
    busy = crawl(URL, NOW + DAY, "failed", http_status=429, retry_after_seconds=60.0)
    await again.handle(kafka.batch(busy, HostLimit(HOST, 0.5, NOW + DAY)))
    rules = rules_of_scheduler(settings, url)
    assert (rules.most_open, rules.limit, rules.failures) == (3, 0.5, 1)
    await again.handle(kafka.batch(bound(None), bound(None, STRANGER)))
    assert stored(url) == stored(url, STRANGER) == (None,)
    assert rules_of_scheduler(settings, url).most_open == 0
    assert rules_of_scheduler(settings, url, STRANGER) is None
    assert kafka.refused == []


async def test_a_bound_alone_is_a_rule_that_people_are_shown(start, kafka, url):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS), bound(3)))
    [listed] = list_hosts(url, NOW, 5, 100)
    assert (listed["host"], listed["max_open_requests"]) == (HOST, 3)
    assert read_host(url, HOST)["max_open_requests"] == 3
    assert read_host(url, identify(URLS[1]).host)["max_open_requests"] == 0
    assert explain_page(url, URL)["host"]["max_open_requests"] == 3
    assert explain_page(url, URLS[1])["host"]["max_open_requests"] is None
    await handler.handle(kafka.batch(bound(None)))
    assert list_hosts(url, NOW, 5, 100) == []
