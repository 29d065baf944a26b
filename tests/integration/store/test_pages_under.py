"""The pages of a host, or below a prefix, one and all."""

from page_batches import page_batch
from store_contents import NOW, SHARDS, fill, urls_of_shard

from shared.contracts.identity import identify
from shared.store import page_listing
from shared.store.connection import connect
from shared.store.imports import import_pages
from shared.store.page_listing import count_under, urls_under
from shared.store.page_status import REMOVED


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


def test_an_import_takes_no_private_addresses_unless_the_operator_says_so(store):
    urls = ["http://169.254.169.254/latest", "http://db/", "https://a.example/"]
    strict = import_pages(store, SHARDS, [page_batch(urls)], now=NOW, private_hosts=False)
    assert (strict.added, strict.refused) == (1, 2)
    assert "FRESHET_ALLOW_PRIVATE_HOSTS" in strict.reasons[0]
    assert import_pages(store, SHARDS, [page_batch(urls)], now=NOW).added == 2
