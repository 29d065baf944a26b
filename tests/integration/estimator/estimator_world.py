"""What the tests of the estimator send to it, what it announces, and what it stored."""

import numpy as np
import psycopg
import pytest
from aiokafka import ConsumerRecord

from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.store.snapshot import load_shard

SHARDS = 4
DAY = 86_400.0
NOW = 1_700_000_000.0
FEW = 5
"""Pages that are kept in memory, where that is not all of them."""

URLS = [f"https://host-{n % 7}.example/page/{n}" for n in range(60)]
TOPICS = {
    PageUpdate: PAGE_UPDATES.name,
    PageSignal: PAGE_SIGNALS.name,
    CrawlOutcome: CRAWL_OUTCOMES.name,
    HostLimit: HOST_LIMITS.name,
}

TABLES = (
    "pages",
    "page_urls",
    "hosts",
    "observations",
    "stream_positions",
    "shard_owners",
    "erased_pages",
    "erased_hosts",
)


class Broker:
    """Keeps what is announced, and numbers the records that tests send."""

    def __init__(self):
        self.announced = {shard: [] for shard in range(SHARDS)}
        self.hosts = {shard: [] for shard in range(SHARDS)}
        self.refused = []
        self.fail = False
        self._offsets = {}

    async def publish(self, announcements, refused):
        self.refused += [letter.reason for letter in refused]
        topics = {
            "page-parameters": (self.announced, PageParameters),
            "host-parameters": (self.hosts, HostParameters),
        }
        if self.fail:
            raise ConnectionError("the process dies before publishing")
        ends = {}
        for (topic, shard), messages in announcements.items():
            sent, kind = topics[topic]
            sent[shard] += [decode(kind, value) for _, value in messages]
            ends[topic, shard] = len(sent[shard])
        return ends

    def heard(self, shard):
        """What a scheduler that was there all along knows: page id → its last parameters."""
        newest, known = 0, {}
        for message in self.announced[shard]:
            if message.epoch >= newest:
                newest, known[message.page_id] = message.epoch, message
        return known

    def batch(self, *messages):
        """A batch with these messages, each on its host's partition."""
        batch = {}
        for message in messages:
            topic = TOPICS[type(message)]
            host = message.host if isinstance(message, HostLimit) else identify(message.url).host
            shard = shard_of(host, SHARDS)
            offset = self._offsets.get((topic, shard), 0)
            self._offsets[topic, shard] = offset + 1
            record = ConsumerRecord(
                topic, shard, offset, 0, 0, host.encode(), encode(message), None, 0, 0, ()
            )
            batch.setdefault(topic, {}).setdefault(shard, []).append(record)
        return batch


def upsert(url, at=NOW, **options):
    return PageUpdate("upsert", url, updated_at=at, **options)


def signal(url, at, source="feed"):
    page = identify(url)
    return PageSignal(page.page_id, page.url, page.host, source, at)


def crawl(url, at, result="unchanged", **options):
    return CrawlOutcome(url, at, result=result, **options)


def contents(settings):
    """Everything of all tables that a batch may write."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return {
            # As text: a rate that is not a number is equal to itself there.
            table: connection.execute(f"SELECT {table}::text FROM {table} ORDER BY 1").fetchall()
            for table in ("pages", "page_urls", "hosts", "observations", "stream_positions")
        }


def empty(settings):
    """Let the database forget all that an estimator has."""
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute(f"TRUNCATE {', '.join(TABLES)}")


def stored(settings):
    """What a batch may write, but how far what was announced reaches."""
    found = contents(settings)
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for table in ("erased_pages", "erased_hosts"):
            found[table] = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
    found["stream_positions"] = [
        row for row in found["stream_positions"] if "-parameters" not in row[0]
    ]
    return found


def assert_schedulers_know(settings, broker):
    """What was announced of pages is what the database has of them."""
    for shard in range(SHARDS):
        pages = load_shard(settings.database_url.get_secret_value(), shard).pages
        known = broker.heard(shard)
        for row, page_id in enumerate(pages.page_ids.tolist()):
            rate = pages.unsignalled_change_rate[row]
            if np.isnan(rate):
                assert page_id not in known or known[page_id].unsignalled_change_rate is None
                continue
            told, near = known[page_id], settings.material_change
            assert told.unsignalled_change_rate == pytest.approx(rate, rel=near)
            assert told.signal_rate == pytest.approx(pages.signal_rate[row], rel=near)


def a_day_of_life(broker):
    """Three batches that touch everything."""
    return [
        broker.batch(*map(upsert, URLS)),
        broker.batch(
            *(crawl(url, NOW + DAY) for url in URLS),
            *(signal(url, NOW + 1.5 * DAY) for url in URLS[::2]),
            HostLimit("host-1.example", 3.0),
            HostLimit("host-2.example", max_open_requests=4, only="open"),
        ),
        broker.batch(
            *(crawl(url, NOW + 2 * DAY, "changed") for url in URLS[::2]),
            *(crawl(url, NOW + 3 * DAY) for url in URLS[::2]),
            crawl(URLS[1], NOW + 2 * DAY, "failed", http_status=429, retry_after_seconds=60.0),
            crawl(URLS[3], NOW + 2 * DAY, "gone", http_status=410),
            PageUpdate("remove", URLS[5], updated_at=NOW + 2 * DAY),
        ),
    ]


async def grown_up(start, kafka):
    """An estimator whose pages have had a day of life."""
    handler = await start(kafka)
    for batch in a_day_of_life(kafka):
        await handler.handle(batch)
    return handler
