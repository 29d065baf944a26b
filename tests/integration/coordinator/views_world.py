"""Pages, hosts, sources and crawls in a database, for those who look at the coordinator's page."""

import asyncio
import time

import psycopg
from aiokafka import ConsumerRecord

from migrations.upgrade import migrate
from services.estimator.handler import EstimatorHandler
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import CrawlOutcome, HostLimit, PageSignal, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings
from shared.store.ping_accounts import PingNews, write_pings
from shared.store.stream_cursors import StreamNews, write_streams
from shared.store.watched import NewSource, Site, add_site, add_sources

SHARDS = 4
DAY = 86_400.0
URL = "https://a.example/news"
URLS = [URL, *(f"https://host-{n % 5}.example/{n}" for n in range(20))]
STREAM = "https://s.example/changes"
SITEMAP = "https://a.example/sitemap.xml"
HOSTILE = "<img src=x onerror=document.title='taken'>"
"""What no worker takes for a name, and whoever writes to the database by hand may."""

_TOPICS = {
    PageUpdate: PAGE_UPDATES,
    PageSignal: PAGE_SIGNALS,
    CrawlOutcome: CRAWL_OUTCOMES,
    HostLimit: HOST_LIMITS,
}


class _Nobody:
    """Hears what is announced."""

    async def publish(self, announcements, refused):
        assert not refused
        return dict.fromkeys(announcements, 0)


async def fill(database_url: str) -> None:
    """Write it all."""
    await asyncio.to_thread(migrate, database_url, SHARDS)
    now = time.time()
    settings = Settings(database_url=database_url, partitions=SHARDS)
    handler = EstimatorHandler(settings, ManualClock(now), _Nobody(), asyncio.Event())
    await handler.open()
    await handler.assigned(set(range(SHARDS)))
    for number, messages in enumerate(_life(now)):
        await handler.handle(_batch(messages, 1000 * number))
    await handler.close()
    with psycopg.connect(database_url, autocommit=True) as connection:
        _more(connection, now)


def _life(now):
    yield [PageUpdate("upsert", url, updated_at=now - 9 * DAY) for url in URLS]
    yield [
        HostLimit("host-1.example", max_crawls_per_second=0.25),
        HostLimit("host-2.example", crawl_delay_seconds=30.0, only="crawl-delay"),
        HostLimit("host-3.example", blocked_until=now + DAY),
        HostLimit("host-1.example", max_open_requests=2, only="open"),
        *(
            CrawlOutcome(url, now - days * DAY, result="changed" if days % 4 else "unchanged")
            for days in (8, 6, 4)
            for url in URLS
        ),
        CrawlOutcome(
            URLS[5], now - 60, result="failed", http_status=429, retry_after_seconds=3600.0
        ),
    ]
    yield [
        PageSignal(page.page_id, page.url, page.host, source, now - DAY)
        for page in map(identify, URLS[:3])
        for source in ("site:a.example/sitemap.xml", "changes")
    ]


def _batch(messages, first):
    batch = {}
    for offset, message in enumerate(messages, first):
        topic = _TOPICS[type(message)].name
        host = message.host if isinstance(message, HostLimit) else identify(message.url).host
        shard = shard_of(host, SHARDS)
        record = ConsumerRecord(
            topic, shard, offset, 0, 0, host.encode(), encode(message), None, 0, 0, ()
        )
        batch.setdefault(topic, {}).setdefault(shard, []).append(record)
    return batch


def _more(connection, now):
    connection.execute(
        "INSERT INTO hosts (shard, host_id, host, max_crawls_per_second, blocked_until, "
        "limit_updated_at, sources) VALUES (0, 1, %s, 2, '-infinity', '-infinity', '[]')",
        (HOSTILE,),
    )
    connection.execute(
        "INSERT INTO multiplier_history (version, computed_at, effective_at, multiplier, "
        "crawls_per_second, cause) VALUES (1, %s, %s, 2.0, 1.0, 'start')",
        (now - 60, now - 60),
    )
    _add_streams(connection, now)
    add_site(connection, Site("https://a.example/", ["a.example"], [], []))
    source = NewSource(SITEMAP, "a.example", "site:a.example/sitemap.xml", "", "robots")
    add_sources(connection, "https://a.example/", [source])
    connection.execute(
        "UPDATE watched_sources SET kind = 'sitemap', entries = 9, signals = 8, exact_signals = 8, "
        "delay_seconds = 80, polls = 24, interval_seconds = 3600, by_value = true, worth = 4, "
        "worth_signals = 8, worth_days = 2, failures = 1, reason = %s",
        (HOSTILE,),
    )


def _add_streams(connection, now):
    """One that is away, for the third time in a row, and the edits by bots that it had."""
    own = StreamNews("changes", STREAM, now - 2 * DAY, 0, "", connections=1)
    write_streams(connection, "1", own)
    own = own._replace(read_at=now, failures=3, reason=HOSTILE, connections=95, gaps=1)
    own = own._replace(bytes_read=10**9, events=5000, bad_events=12)
    own = own._replace(signals=8, exact_signals=8, delay_seconds=80.0)
    own = own._replace(worth=4.0, worth_signals=8.0, worth_days=2.0)
    bots = StreamNews("changes-bots", STREAM, now, 0, "", signals=7)
    write_streams(connection, "2", own, bots)
    # The receiver hears of the same from somebody who is later.
    write_pings(connection, [PingNews("changes", 9, 4, 400.0)])
