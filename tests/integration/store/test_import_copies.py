"""However an import cuts its rows for the server, all of them come, each once, with its URL."""

import numpy as np
import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, urls_of_shard

from shared.contracts.identity import identify
from shared.store import import_writing
from shared.store.connection import connect
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
