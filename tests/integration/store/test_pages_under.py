"""The pages of a host, or below a prefix, one and all."""

import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, fill, urls_of_shard

from shared.contracts.databases import Databases
from shared.contracts.identity import identify, shard_of
from shared.store import page_listing
from shared.store.connection import connect
from shared.store.imports import import_pages
from shared.store.page_listing import count_under, urls_under
from shared.store.page_status import AWAY, REMOVED
from shared.store.splitting import prepare, split_all


def test_pages_are_found_by_host_and_by_prefix_in_parts_without_removed_ones(store, monkeypatch):
    monkeypatch.setattr(page_listing, "URLS_AT_ONCE", 7)
    urls = urls_of_shard(0, 60) + urls_of_shard(1, 20)
    fill(store, urls)
    host = identify(urls[0]).host
    of_host = sorted(url for url in urls if identify(url).host == host)
    gone = identify(of_host[0])
    with connect(store, "test") as connection:
        connection.execute(
            "UPDATE pages SET status = %s WHERE page_id = %s", (REMOVED, gone.page_id)
        )
    prefix = of_host[-1][:-1]
    for begin in ("", prefix):
        expected = [url for url in of_host[1:] if url.startswith(begin)]
        parts = list(urls_under(store, host, begin))
        assert sorted(url for part in parts for url in part) == expected
        assert all(len(part) <= 7 for part in parts)
        assert count_under(store, host, begin) == len(expected) > 0
    assert count_under(store, "nobody.example", "") == 0
    # No pattern: what LIKE makes of it does not count.
    assert count_under(store, host, f"https://{host}/%") == 0


@pytest.mark.parametrize("status", sorted({REMOVED, *AWAY}))
def test_of_pages_that_are_crawled_those_that_are_not_are_left_out(store, status):
    urls = urls_of_shard(0, 60)
    fill(store, urls)
    host = identify(urls[0]).host
    away, *others = sorted(url for url in urls if identify(url).host == host)
    with connect(store, "test") as connection:
        connection.execute(
            "UPDATE pages SET status = %s WHERE page_id = %s", (status, identify(away).page_id)
        )
    [part] = urls_under(store, host, "", only_active=True)
    assert sorted(part) == others
    assert count_under(store, host, "", only_active=True) == len(others)


def test_whoever_takes_long_between_two_parts_keeps_nothing_open(store, monkeypatch):
    """A broker that blocks keeps a command waiting for longer than a server lets it be silent."""
    monkeypatch.setattr(page_listing, "URLS_AT_ONCE", 7)
    fill(store, urls_of_shard(0, 60))
    parts = urls_under(store, identify(urls_of_shard(0, 1)[0]).host, "")
    next(parts)
    with connect(store, "test") as connection:
        states = connection.execute(
            "SELECT state FROM pg_stat_activity "
            "WHERE application_name = 'freshet-pages' AND datname = current_database()"
        ).fetchall()
    assert states == [("idle",)]
    parts.close()


def split(store):
    layout = prepare(Databases.alone(store), 2 * SHARDS)
    split_all(Databases.alone(store), layout, lambda *_: None, wait_seconds=0.0, unattended=True)


def test_pages_of_a_shard_that_is_split_amid_a_part_are_found_where_they_were(store, monkeypatch):
    urls = urls_of_shard(0, 200)
    fill(store, urls)
    host = next(h for h in (identify(u).host for u in urls) if shard_of(h, 2 * SHARDS) != 0)
    look, splits = page_listing._under, [split]

    def look_and_split(*asked):
        where = look(*asked)
        while splits:
            splits.pop()(store)
        return where

    monkeypatch.setattr(page_listing, "_under", look_and_split)
    [part] = urls_under(store, host, "")
    assert sorted(part) == sorted(url for url in urls if identify(url).host == host)


def test_pages_of_a_shard_that_is_split_between_two_parts_are_all_found(store, monkeypatch):
    monkeypatch.setattr(page_listing, "URLS_AT_ONCE", 7)
    urls = urls_of_shard(0, 200)
    fill(store, urls)
    hosts = sorted({identify(url).host for url in urls})
    listings = [urls_under(store, host, "") for host in hosts]
    found = [next(parts) for parts in listings]
    split(store)
    assert len({shard_of(host, 2 * SHARDS) for host in hosts}) == 2, "some are elsewhere now"
    found += [part for parts in listings for part in parts]
    assert sorted(url for part in found for url in part) == sorted(urls)


def test_an_import_takes_no_private_addresses_unless_the_operator_says_so(store):
    urls = ["http://169.254.169.254/latest", "http://db/", "https://a.example/"]
    strict = import_pages(store, SHARDS, [page_batch(urls)], now=NOW, private_hosts=False)
    assert (strict.added, strict.refused) == (1, 2)
    assert "FRESHET_ALLOW_PRIVATE_HOSTS" in strict.reasons[0]
    assert import_pages(store, SHARDS, [page_batch(urls)], now=NOW).added == 2
