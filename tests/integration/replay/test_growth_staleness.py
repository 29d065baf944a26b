"""What was learned stays when shards grow: the days after are as fresh as without the growth.

Replayed through the learning and the picking of production, and split in PostgreSQL as by
`freshet shards grow` (`freshet bench growth-staleness`).
"""

import re
import uuid

import psycopg
import pytest

from services.bench import growth_staleness
from services.replay.slots import Budget

PAGES, DAYS = 1_000, 50.0
SHARDS = 4

pytestmark = [pytest.mark.postgres, pytest.mark.slow(20), pytest.mark.long]

MIXED_UP = """
WITH pages_of AS (
    SELECT *, row_number() OVER (PARTITION BY shard ORDER BY page_id) AS place,
        row_number() OVER (PARTITION BY shard ORDER BY page_id DESC) AS place_from_the_end
    FROM pages WHERE shard > 0
)
UPDATE pages SET history = other.history, signal_evidence = other.signal_evidence,
    signal_rate = other.signal_rate, unsignalled_change_rate = other.unsignalled_change_rate
FROM pages_of AS page
JOIN pages_of AS other ON other.shard = page.shard AND other.place = page.place_from_the_end
WHERE pages.shard = page.shard AND pages.page_id = page.page_id
"""


@pytest.fixture
def databases(database_url):
    def make(name):
        name = f"{name}_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return re.sub(r"@/[^?]*", f"@/{name}", database_url)

    return make


def ratios(databases):
    trace = growth_staleness.hosts_alike(PAGES, DAYS, 3)
    budget = Budget.constant(PAGES / growth_staleness.PAGES_A_CRAWL)
    found = growth_staleness.compare(trace, budget, DAYS / 2, SHARDS, databases)
    assert found["crawls_after"] > 1_000
    return found["ratio_one_estimator"], found["ratio_an_estimator_each"]


def test_the_days_after_a_growth_are_as_fresh_as_without_it(databases):
    assert all(abs(ratio - 1.0) < 0.01 for ratio in ratios(databases))


def test_it_would_be_seen_if_pages_got_what_was_learned_of_others(databases, monkeypatch):
    grow = growth_staleness.grow

    def grow_and_mix_up(url, factor):
        grow(url, factor)
        with psycopg.connect(url) as connection:
            connection.execute(MIXED_UP)

    monkeypatch.setattr(growth_staleness, "grow", grow_and_mix_up)
    found = ratios(databases)
    assert all(ratio > 1.01 for ratio in found)
