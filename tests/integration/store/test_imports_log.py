"""What an import notes for schedulers that run."""

from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, fill, urls_of_shard

from shared.store.connection import connect, connect_writer
from shared.store.imports import import_pages
from shared.store.imports_log import (
    KEPT_SECONDS,
    ImportsForgotten,
    read_imported_pages,
    read_imports,
    read_last_import,
)
from shared.store.snapshot import load_shard


@pytest.fixture
def connection(store):
    with connect(store, "test", autocommit=True) as connection:
        yield connection


def test_each_commit_of_an_import_is_noted_for_each_of_its_shards(store, connection):
    urls = [url for shard in range(SHARDS) for url in urls_of_shard(shard, 30)]
    batches = [page_batch(urls[:45]), page_batch(urls[45:])]
    import_pages(store, SHARDS, batches, now=NOW)
    found = read_imports(connection, dict.fromkeys(range(SHARDS), 0), most=10)
    assert [(one.shard, one.number) for one in found] == [(0, 1), (1, 1), (1, 2), (2, 1)]
    for shard in range(SHARDS):
        noted = np.concatenate([one.page_ids for one in found if one.shard == shard])
        assert sorted(noted) == load_shard(store, shard).pages.page_ids.tolist()
        assert load_shard(store, shard).imported == read_last_import(connection, shard)


def test_a_batch_whose_rows_are_all_refused_is_no_import(store, connection):
    report = import_pages(
        store, SHARDS, [page_batch(["no address", "ftp://files.example/"])], now=NOW
    )
    assert (report.added, report.refused) == (0, 2)
    assert read_imports(connection, dict.fromkeys(range(SHARDS), 0), most=10) == []


def test_only_what_was_not_seen_is_read(store, connection):
    fill(store, urls_of_shard(1, 30))
    assert read_imports(connection, {1: 1}) == []
    fill(store, urls_of_shard(1, 40))
    [second] = read_imports(connection, {1: 1, 2: 0})
    assert (second.shard, second.number, second.page_ids.size) == (1, 2, 40)


def test_pages_are_read_as_the_updates_that_make_them(store, connection):
    urls = urls_of_shard(1, 3)
    columns = {
        "importance": np.array([1.0, 2.0, 3.0]),
        "max_age_days": np.array([np.inf, 7.0, np.inf]),
        "crawled_at": np.array([-np.inf, NOW - 5, -np.inf]),
    }
    fill(store, urls, **columns)
    connection.execute(
        "UPDATE pages SET status = 1 WHERE (shard, page_id) IN "
        "(SELECT shard, page_id FROM page_urls WHERE url = %s)",
        (urls[2],),
    )
    [noted] = read_imports(connection, {1: 0})
    found = sorted(read_imported_pages(connection, 1, noted.page_ids), key=lambda u: u.url)
    assert [(u.url, u.importance, u.max_age_days, u.crawled_at, u.updated_at) for u in found] == [
        (urls[0], 1.0, None, None, NOW),
        (urls[1], 2.0, 7.0, NOW - 5, NOW),
    ]
    # A page that had a bound of its own before has none any more.
    assert [u.no_max_age for u in found] == [True, False]


def test_old_notes_are_forgotten_but_the_last_and_who_needs_them_is_told(store, connection):
    urls = urls_of_shard(1, 4)
    later = NOW + KEPT_SECONDS + 1
    for url in urls[:3]:
        import_pages(store, SHARDS, [page_batch([url])], now=NOW)
    import_pages(store, SHARDS, [page_batch(urls[3:])], now=later)
    assert [one.number for one in read_imports(connection, {1: 2}, most=9)] == [3, 4]
    with pytest.raises(ImportsForgotten):
        read_imports(connection, {1: 0})


def test_the_next_import_need_not_wait_until_the_server_notices_that_the_last_one_is_gone(
    store, monkeypatch
):
    first, second = urls_of_shard(1, 2)
    with ExitStack() as kept:

        @contextmanager
        def still_connected(*where):
            yield kept.enter_context(connect_writer(*where))

        with monkeypatch.context() as patched:
            patched.setattr("shared.store.imports.connect_writer", still_connected)
            import_pages(store, SHARDS, [page_batch([first])], now=NOW)
        import_pages(store, SHARDS, [page_batch([second])], now=NOW)
    assert load_shard(store, 1).pages.page_ids.size == 2
