"""Pages that a batch names, before any of it is applied."""

import numpy as np
from aiokafka import ConsumerRecord

from services.estimator.naming import named_pages
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, HostLimit, PageSignal, PageUpdate
from shared.store.directories import directory_of

URLS = [f"https://h.example/d{n % 3}/é{n}".replace("é", "%C3%A9") for n in range(7)]


def record(message):
    data = message if isinstance(message, bytes) else encode(message)
    return ConsumerRecord("any", 0, 0, 0, 0, None, data, None, -1, -1, ())


def signal(url):
    page = identify(url)
    return PageSignal(page.page_id, page.url, page.host, "feed", 1.7e9)


def test_all_pages_are_named_once_with_their_directories():
    named = named_pages(
        {
            "page-updates": [record(PageUpdate("upsert", url)) for url in URLS[:3]],
            "page-signals": [record(signal(url)) for url in URLS[2:5]],
            "crawl-outcomes": [
                record(CrawlOutcome(url, 1.7e9, result="changed")) for url in URLS[4:] + URLS[4:]
            ],
            "host-limits": [record(HostLimit("h.example", 1.0))],
        }
    )
    expected = sorted((identify(url).page_id, directory_of(url)) for url in URLS)
    assert list(zip(named.page_ids.tolist(), named.directories.tolist(), strict=True)) == expected
    some = named.chosen(np.arange(7) % 2 == 0)
    assert (
        list(zip(some.page_ids.tolist(), some.directories.tolist(), strict=True)) == expected[::2]
    )


def test_what_cannot_be_read_names_nothing():
    bad = [record(b"{"), record(b'{"url": 3}'), record(b"[]")]
    named = named_pages({"crawl-outcomes": bad, "page-signals": bad})
    assert named.page_ids.size == named.directories.size == 0
    assert named_pages({}).page_ids.size == 0
