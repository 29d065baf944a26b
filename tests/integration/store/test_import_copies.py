"""However an import cuts its rows for the server, all of them come, each once, with its URL."""

import numpy as np
import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, urls_of_shard

from shared.contracts.identity import identify
from shared.store import import_writing
from shared.store.connection import connect
from shared.store.history import WAITING, WAITING_OFFSET, Rings, pack
from shared.store.imports import import_pages

QUERY = (
    "SELECT url, pages.page_id, importance, max_age_days, last_crawled_at "
    "FROM pages JOIN page_urls USING (shard, page_id)"
)


@pytest.mark.parametrize(("most", "fewest"), [(3, 1), (3, 5), (7, 20), (1000, 1), (1000, 1000)])
def test_however_rows_are_cut_all_of_them_come(store, monkeypatch, most, fewest):
    monkeypatch.setattr(import_writing, "_MOST_ROWS", most)
    monkeypatch.setattr(import_writing, "_FEWEST_ROWS", fewest)
    urls = [
        url for shard, count in ((0, 20), (1, 1), (2, 9)) for url in urls_of_shard(shard, count)
    ]
    # Of a URL that is not canonical as it stands the bytes are elsewhere.
    urls[3] += "#part"
    numbers = np.arange(1.0, len(urls) + 1)
    columns = {"importance": numbers, "max_age_days": numbers, "crawled_at": numbers}
    batch = page_batch(urls, **columns)
    known = page_batch(urls[::4], importance=np.full(len(urls[::4]), 0.5))
    assert import_pages(store, SHARDS, [known], now=NOW).added == len(urls[::4])
    report = import_pages(store, SHARDS, [batch], now=NOW)
    assert (report.added, report.updated) == (len(urls) - len(urls[::4]), len(urls[::4]))
    with connect(store, "test") as connection:
        found = connection.execute(QUERY).fetchall()
    pages = [identify(url) for url in urls]
    expected = {
        (page.url, page.page_id, number, number, number)
        for page, number in zip(pages, numbers.tolist(), strict=True)
    }
    assert len(found) == len(urls)
    assert set(found) == expected


def kept_of(store, url):
    """Importance of a page, when it was crawled and tried last, and when it was last said of."""
    query = "SELECT importance, last_crawled_at, last_attempt_at, updated_at FROM pages "
    with connect(store, "test") as connection:
        page_id = identify(url).page_id
        return connection.execute(query + "WHERE page_id = %s", (page_id,)).fetchone()


def test_of_two_rows_about_a_page_the_last_counts(store):
    [url] = urls_of_shard(1, 1)
    rows = page_batch([url, f"{url}#part", url], importance=np.array([1.0, 2.0, 3.0]))
    report = import_pages(store, SHARDS, [rows], now=NOW)
    assert (report.read, report.added, report.updated) == (3, 1, 0)
    assert kept_of(store, url)[0] == 3.0
    import_pages(store, SHARDS, [page_batch([url, url], importance=np.array([5.0, 4.0]))], now=NOW)
    assert kept_of(store, url)[0] == 4.0


def test_a_file_of_before_takes_back_no_crawl_that_is_known(store):
    [url] = urls_of_shard(1, 1)

    def imported(crawled_at, now):
        rows = page_batch([url], crawled_at=np.array([crawled_at]))
        import_pages(store, SHARDS, [rows], now=now)
        return kept_of(store, url)[1:]

    assert imported(NOW - 100.0, NOW) == (NOW - 100.0, NOW - 100.0, NOW)
    # By a machine whose clock is behind, too.
    assert imported(NOW - 5000.0, NOW - 50.0) == (NOW - 100.0, NOW - 100.0, NOW)
    assert imported(-np.inf, NOW + 1.0) == (NOW - 100.0, NOW - 100.0, NOW + 1.0)
    assert imported(NOW - 10.0, NOW + 2.0) == (NOW - 10.0, NOW - 10.0, NOW + 2.0)


def test_failures_are_over_where_the_copy_is_of_a_later_crawl_and_only_there(store):
    [url] = urls_of_shard(1, 1)
    import_pages(store, SHARDS, [page_batch([url])], now=NOW)

    def failures_after(crawled_at):
        with connect(store, "test") as connection:
            failed = "UPDATE pages SET failures = 3, misses = 1, last_attempt_at = %s"
            connection.execute(failed, (NOW + 50.0,))
            connection.commit()
            rows = page_batch([url], crawled_at=np.array([crawled_at]))
            import_pages(store, SHARDS, [rows], now=NOW + 100.0)
            return connection.execute("SELECT failures, misses FROM pages").fetchone()

    assert failures_after(-np.inf) == failures_after(NOW + 49.0) == (3, 1)
    assert failures_after(NOW + 60.0) == (0, 0)


def test_signals_from_before_a_copy_wait_for_nothing_and_its_digest_is_another(store):
    [url] = urls_of_shard(1, 1)
    import_pages(store, SHARDS, [page_batch([url], crawled_at=np.array([NOW]))], now=NOW)
    rings = Rings.empty(1)
    rings.pending[0], rings.multiplier[0], rings.last_source[0] = [1, 0, 2, 0], 0.5, 2
    row = np.array([0])

    def after(crawled_at):
        """Signals, digest, signals by source, multiplier and last source of a page that was
        signalled last at NOW + 50."""
        with connect(store, "test") as connection:
            known = "UPDATE pages SET signals = 3, digest = 7, last_signal_at = %s, history = %s"
            connection.execute(known, (NOW + 50.0, bytes(pack(rings, row).arena)))
            connection.execute("UPDATE pages SET last_crawled_at = %s", (NOW,))
            connection.commit()
            rows = page_batch([url], crawled_at=np.array([crawled_at]))
            import_pages(store, SHARDS, [rows], now=NOW + 100.0)
            stored = connection.execute("SELECT signals, digest, history FROM pages").fetchone()
        waiting = np.frombuffer(stored[2], WAITING, 1, WAITING_OFFSET)[0]
        return *stored[:2], *(waiting[name].tolist() for name in WAITING.names)

    as_before = [1, 0, 2, 0], 0.5, 2
    assert after(-np.inf) == after(NOW) == (3, 7, *as_before)
    assert after(NOW + 40.0) == (3, 0, *as_before)
    assert after(NOW + 60.0) == (0, 0, [0, 0, 0, 0], 0.5, 2)


def test_what_came_before_a_fault_stays_and_owners_of_before_load_it_anew(store):
    urls = urls_of_shard(1, 20)

    def damaged():
        yield page_batch(urls[:10])
        yield page_batch(urls[10:15])
        raise OSError("the disk is damaged")

    def epochs():
        with connect(store, "test") as connection:
            return dict(connection.execute("SELECT shard, epoch FROM shard_owners").fetchall())

    import_pages(store, SHARDS, [page_batch(urls_of_shard(2, 1))], now=NOW)
    before = epochs()
    with pytest.raises(OSError, match="damaged"):
        import_pages(store, SHARDS, damaged(), now=NOW)
    assert [kept_of(store, url) is not None for url in urls] == [True] * 15 + [False] * 5
    # Also of an estimator that has lost its connection, and does not know of the import.
    assert all(epochs()[shard] > before[shard] for shard in range(SHARDS))
