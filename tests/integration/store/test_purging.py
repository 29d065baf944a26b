"""Which pages may leave the database for good, and what they leave behind them."""

import numpy as np
import psycopg
import pytest
from store_contents import NOW, SHARDS, fill, urls_of_shard

from services.cli.erasing import of_looks
from shared.contracts.databases import Databases
from shared.contracts.identity import identify, shard_of
from shared.contracts.topics import TOPICS
from shared.store import erased_traces, purging
from shared.store.erased_traces import delete_observations, observation_runs
from shared.store.erasing import KEPT_SECONDS
from shared.store.page_status import ACTIVE, DISALLOWED, DUPLICATE, GONE, REDIRECTED, REMOVED
from shared.store.purging import Purgeable, count_purgeable, purgeable_urls
from shared.store.splitting import prepare, split_all
from shared.store.writer import ensure_observation_partition
from shared.units import SECONDS_PER_DAY as DAY

URLS = urls_of_shard(0, 12) + urls_of_shard(1, 6)
GROWN = 2 * SHARDS


def become(store, url, **columns):
    """A page has other columns."""
    assignments = ", ".join(f"{name} = %s" for name in columns)
    with psycopg.connect(store) as connection:
        query = f"UPDATE pages SET {assignments} WHERE page_id = %s"
        connection.execute(query, (*columns.values(), identify(url).page_id))


def found(store, wanted):
    urls = [url for part in purgeable_urls(Databases.alone(store), wanted) for url in part]
    assert sum(count_purgeable(Databases.alone(store), wanted)) == len(urls)
    return sorted(urls)


def test_removed_pages_may_go_once_they_have_been_for_long_enough(store, monkeypatch):
    monkeypatch.setattr(purging, "URLS_AT_ONCE", 2)
    fill(store, URLS)
    for number, url in enumerate(URLS[:5]):
        become(store, url, status=REMOVED, updated_at=NOW + number * DAY)
    become(store, URLS[15], status=REMOVED, updated_at=NOW)
    wanted = Purgeable(NOW + 2 * DAY, gone=False)
    assert found(store, wanted) == sorted([*URLS[:3], URLS[15]])
    host = identify(URLS[0]).host
    of_host = [url for url in URLS[:3] if identify(url).host == host]
    assert found(store, Purgeable(NOW + 2 * DAY, host=host)) == sorted(of_host)
    assert found(store, Purgeable(NOW + 2 * DAY, removed=False)) == []
    everything = [url for url in URLS if identify(url).host == host]
    assert found(store, Purgeable(host=host, any_status=True)) == sorted(everything)


@pytest.mark.parametrize(
    ("days", "columns"),
    [
        # Looked at last thirty days after it was found gone: gone since then, and no longer.
        (30, {"last_attempt_at": NOW + 30 * DAY, "misses": 3}),
        # The fifth 404 in a row: the fourth was at least a day before, the sixth four days.
        (29, {"last_attempt_at": NOW + 30 * DAY, "misses": 4}),
        (26, {"last_attempt_at": NOW + 30 * DAY, "misses": 6}),
        # Named since: the rhythm began anew.
        (30, {"last_attempt_at": NOW + 30 * DAY, "misses": 6, "last_signal_at": NOW + 29 * DAY}),
        (29, {"last_attempt_at": NOW + 5 * DAY, "misses": 3, "last_signal_at": NOW + 29 * DAY}),
        (29, {"last_attempt_at": NOW + 5 * DAY, "misses": 3, "updated_at": NOW + 29 * DAY}),
        (5, {"last_attempt_at": NOW + 5 * DAY, "misses": 3, "last_crawled_at": NOW}),
    ],
)
def test_how_long_a_page_has_been_gone_is_never_made_longer(store, days, columns):
    fill(store, URLS)
    url = URLS[0]
    become(store, url, status=GONE, **({"last_crawled_at": -np.inf, "updated_at": NOW} | columns))
    rhythm = of_looks()
    at = NOW + days * DAY
    assert found(store, Purgeable(at + 1.0, rhythm=rhythm)) == [url]
    assert found(store, Purgeable(at - 1.0, rhythm=rhythm)) == []
    assert found(store, Purgeable(at + 1.0, gone=False, rhythm=rhythm)) == []
    for status in (REDIRECTED, DUPLICATE):
        become(store, url, status=status)
        assert found(store, Purgeable(at + 1.0, rhythm=rhythm)) == [url]
        assert found(store, Purgeable(at - 1.0, rhythm=rhythm)) == []
    for status in (ACTIVE, DISALLOWED):
        become(store, url, status=status)
        assert found(store, Purgeable(at + 1.0, rhythm=rhythm)) == []


def test_what_crawls_found_goes_with_the_page_and_of_no_other(store, monkeypatch):
    monkeypatch.setattr(erased_traces, "BLOCKS_AT_ONCE", 1)
    fill(store, URLS)
    gone, back, other = (identify(url).page_id for url in URLS[:3])
    with psycopg.connect(store) as connection:
        ensure_observation_partition(connection, NOW)
        for page_id in (gone, back, other):
            connection.execute(
                "INSERT INTO observations SELECT 0, %s, %s, %s + n, 1, 0, false "
                "FROM generate_series(1, 400) AS n",
                (page_id, NOW, NOW),
            )
            if page_id != other:
                connection.execute(
                    "INSERT INTO erased_pages VALUES (0, %s, %s)", (page_id, NOW + 300)
                )
        connection.execute("DELETE FROM pages WHERE page_id = %s", (gone,))
    assert delete_observations(store) == 400 + 300
    with psycopg.connect(store) as connection:
        query = "SELECT page_id, count(*) FROM observations GROUP BY 1"
        assert dict(connection.execute(query).fetchall()) == {back: 100, other: 400}


def test_what_is_appended_while_crawl_records_are_looked_through_is_looked_at_too(
    store, monkeypatch
):
    monkeypatch.setattr(erased_traces, "BLOCKS_AT_ONCE", 1)
    append = (
        "INSERT INTO observations SELECT 0, 1, %s, %s, 1, 0, false FROM generate_series(1, 400)"
    )
    with psycopg.connect(store, autocommit=True) as connection:
        ensure_observation_partition(connection, NOW)
        connection.execute(append, (NOW, NOW))
        runs, seen = list(observation_runs(connection)), 0
        connection.execute(append, (NOW, NOW))
        for table, begin, end in runs:
            query = f"SELECT count(*) FROM {table} WHERE ctid >= %s::tid AND ctid < %s::tid"
            [found] = connection.execute(query, (begin, end)).fetchone()
            seen += found
    assert seen == 800


def test_that_a_page_was_erased_is_known_for_longer_than_any_topic_keeps_it():
    kept = [int(t.config["retention.ms"]) for t in TOPICS if "retention.ms" in t.config]
    assert max(kept) / 1000 < KEPT_SECONDS


@pytest.mark.parametrize("of_host", [False, True])
def test_pages_whose_shard_is_split_meanwhile_are_found_where_they_went(
    store, monkeypatch, of_host
):
    """What was looked at before is looked at again: a page that is erased is not there any more."""
    monkeypatch.setattr(purging, "URLS_AT_ONCE", 1)
    databases = Databases.alone(store)
    fill(store, URLS)
    moving = [url for url in URLS if shard_of(identify(url).host, GROWN) >= SHARDS]
    host = identify(moving[0]).host if of_host else None
    wanted = {url for url in URLS if host in (None, identify(url).host)}
    parts = purgeable_urls(databases, Purgeable(host=host, any_status=True))
    found = set(next(parts))
    layout = prepare(databases, GROWN)
    split_all(databases, layout, lambda *_: None, wait_seconds=0.0, unattended=True)
    assert found | {url for part in parts for url in part} == wanted
