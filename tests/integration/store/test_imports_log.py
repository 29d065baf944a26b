"""What an import notes for schedulers that run."""

from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, fill, urls_of_shard

from shared.contracts.identity import identify
from shared.store.connection import connect, connect_writer
from shared.store.imports import import_pages
from shared.store.imports_log import (
    KEPT_SECONDS,
    ImportsForgotten,
    read_imported_pages,
    read_imports,
    read_last_import,
    read_learned,
)
from shared.store.last_imports import NO_IMPORT, LastImport
from shared.store.snapshot import load_shard


@pytest.fixture
def connection(store):
    with connect(store, "test", autocommit=True) as connection:
        yield connection


def test_each_commit_of_an_import_is_noted_for_each_of_its_shards(store, connection):
    urls = [url for shard in range(SHARDS) for url in urls_of_shard(shard, 30)]
    batches = [page_batch(urls[:45]), page_batch(urls[45:])]
    import_pages(store, SHARDS, batches, now=NOW)
    found = read_imports(connection, dict.fromkeys(range(SHARDS), NO_IMPORT), most=10)
    assert [(one.shard, one.last.number) for one in found] == [(0, 1), (1, 1), (1, 2), (2, 1)]
    for shard in range(SHARDS):
        noted = np.concatenate([one.page_ids for one in found if one.shard == shard])
        assert sorted(noted) == load_shard(store, shard).pages.page_ids.tolist()
        assert load_shard(store, shard).imported == read_last_import(connection, shard)


def test_a_batch_whose_rows_are_all_refused_is_no_import(store, connection):
    report = import_pages(
        store, SHARDS, [page_batch(["no address", "ftp://files.example/"])], now=NOW
    )
    assert (report.added, report.refused) == (0, 2)
    assert read_imports(connection, dict.fromkeys(range(SHARDS), NO_IMPORT), most=10) == []


def test_only_what_was_not_seen_is_read(store, connection):
    fill(store, urls_of_shard(1, 30))
    first = LastImport(1, NOW)
    assert read_imports(connection, {1: first}) == []
    fill(store, urls_of_shard(1, 40))
    [second] = read_imports(connection, {1: first, 2: NO_IMPORT})
    assert (second.shard, second.last, second.page_ids.size) == (1, LastImport(2, NOW), 40)


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
    [noted] = read_imports(connection, {1: NO_IMPORT})
    found = sorted(read_imported_pages(connection, 1, noted.page_ids), key=lambda u: u.url)
    assert [(u.url, u.importance, u.max_age_days, u.crawled_at, u.updated_at) for u in found] == [
        (urls[0], 1.0, None, None, NOW),
        (urls[1], 2.0, 7.0, NOW - 5, NOW),
    ]
    # A page that had a bound of its own before has none any more.
    assert [u.no_max_age for u in found] == [True, False]


def test_what_was_learned_is_read_of_pages_of_which_anything_was(store, connection):
    urls = urls_of_shard(1, 4)
    fill(store, urls)
    for url, rate, gamma in ((urls[1], 24.0, 0.0), (urls[2], "NaN", 5.0), (urls[3], 7.0, 5.0)):
        connection.execute(
            "UPDATE pages SET unsignalled_change_rate = %s, signal_rate = %s, signal_evidence = 2, "
            "signal_count = 9 WHERE page_id = %s",
            (rate, gamma, identify(url).page_id),
        )
    ids = np.array([identify(url).page_id for url in urls])
    learned = read_learned(connection, 1, ids)
    found = {one[0]: one[1:] for one in zip(*(column.tolist() for column in learned), strict=True)}
    assert found.keys() == set(ids[1:].tolist())
    assert found[int(ids[1])] == (24.0, 2.0, 0.0, 4)
    assert found[int(ids[3])] == (7.0, 2.0, 5.0, 4)
    rate, evidence, gamma, _ = found[int(ids[2])]
    assert np.isnan([rate, evidence]).all(), "its host's hold"
    assert gamma == 5.0
    assert read_learned(connection, 1, ids[:1]).page_ids.size == 0


def test_old_notes_are_forgotten_but_the_last_and_who_needs_them_is_told(store, connection):
    urls = urls_of_shard(1, 4)
    later = NOW + KEPT_SECONDS + 1
    for url in urls[:3]:
        import_pages(store, SHARDS, [page_batch([url])], now=NOW)
    import_pages(store, SHARDS, [page_batch(urls[3:])], now=later)
    found = read_imports(connection, {1: LastImport(2, NOW)}, most=9)
    assert [one.last.number for one in found] == [3, 4]
    with pytest.raises(ImportsForgotten, match="1 to 2 are not noted any more"):
        read_imports(connection, {1: NO_IMPORT})


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


@pytest.mark.parametrize("since", [0, 1, 2], ids=["none", "as many", "more"])
def test_who_has_an_import_that_the_database_has_lost_is_told(store, connection, since):
    """It was restored alone, or a standby was promoted without the last commits."""
    urls = urls_of_shard(1, 4)
    for number, url in enumerate(urls[:2]):
        import_pages(store, SHARDS, [page_batch([url])], now=NOW + number)
    before, seen = {1: LastImport(1, NOW)}, {1: read_last_import(connection, 1)}
    connection.execute("DELETE FROM page_imports WHERE number = 2")
    for url in urls[2 : 2 + since]:
        import_pages(store, SHARDS, [page_batch([url])], now=NOW + 9)
    with pytest.raises(ImportsForgotten, match="has lost import 2"):
        read_imports(connection, seen)
    # Who had not seen it yet goes on with those that came in its place.
    numbers = [one.last for one in read_imports(connection, before, most=9)]
    assert numbers == [LastImport(number, NOW + 9) for number in range(2, 2 + since)]


def test_who_has_the_only_import_and_finds_none_is_told(store, connection):
    fill(store, urls_of_shard(1, 2))
    connection.execute("DELETE FROM page_imports")
    with pytest.raises(ImportsForgotten):
        read_imports(connection, {1: LastImport(1, NOW)})
