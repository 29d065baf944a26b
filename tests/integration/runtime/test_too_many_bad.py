"""More bad messages than a topic may have: the worker stands still, and nothing is lost."""

import asyncio
import time
import uuid
from contextlib import asynccontextmanager

import psycopg
import pytest
from aiokafka import TopicPartition
from apache import ONCE
from workers import reader, settings_for, worker

from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import CrawlOutcome, PageUpdate, Signal
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    DEAD_LETTERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
)
from shared.runtime.kafka import ensure_topics, make_consumer
from shared.runtime.publisher import Publisher

pytestmark = pytest.mark.slow(5)

LEAST = 50
URLS = [f"https://host-{n % 9}.example/{n}" for n in range(100)]


async def prepared(broker, migrated_url, **more):
    settings = settings_for(
        broker.bootstrap_servers,
        f"bad-{uuid.uuid4().hex[:8]}",
        **({"database_url": migrated_url, "bad_messages_least": LEAST} | more),
    )
    await ensure_topics(settings)
    return settings


@asynccontextmanager
async def publishing(settings):
    publisher = Publisher(settings)
    await publisher.start()
    try:
        yield publisher
        await publisher.flush()
    finally:
        await publisher.stop()


async def publish(settings, topic, messages):
    async with publishing(settings) as publisher:
        for message in messages:
            host = identify(message.url).host
            shard = shard_of(host, settings.partitions)
            await publisher.send(topic, host.encode(), encode(message), partition=shard)


async def letters(settings):
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        tp = TopicPartition(settings.topic(DEAD_LETTERS.name), 0)
        return (await consumer.end_offsets([tp]))[tp]
    finally:
        await consumer.stop()


@ONCE
async def test_a_worker_stands_still_before_too_many_bad_messages(broker, migrated_url, tmp_path):
    settings = await prepared(broker, migrated_url, stall_seconds=3.0)
    unknown = [CrawlOutcome(url, 1.7e9, result="changed") for url in URLS]
    with worker("estimator", settings, tmp_path) as process:
        await process.ready()
        await publish(settings, CRAWL_OUTCOMES, unknown)
        await process.not_ready("messages of crawl-outcomes are bad")
        _, exposed = await process.get("/metrics")
        assert b'freshet_halted{topic="crawl-outcomes"} 1.0' in exposed
        # It stays so, for people to see: the watchdog does not take it for a stall.
        await asyncio.sleep(4.0)
        await process.not_ready("FRESHET_BAD_MESSAGES_SHARE")
        assert await letters(settings) < LEAST
        assert process.stop() == 0
    # The fault was that the pages were not known; nobody has lost their crawls.
    before = await letters(settings)
    await publish(settings, PAGE_UPDATES, [PageUpdate("upsert", u, updated_at=1.6e9) for u in URLS])
    tolerant = settings.model_copy(update={"bad_messages_share": 1.0})
    tolerant.model_fields_set.add("bad_messages_share")
    with worker("estimator", tolerant, tmp_path) as process:
        await process.ready()
        deadline = time.monotonic() + 60
        async with reader(settings, DEAD_LETTERS):
            while crawls(migrated_url) + await letters(settings) < len(URLS):
                assert time.monotonic() < deadline, process.log
                await asyncio.sleep(0.1)
    assert crawls(migrated_url) >= len(URLS) - LEAST
    assert await letters(settings) - before <= LEAST


def crawls(database_url):
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT coalesce(sum(crawls), 0)::int FROM pages").fetchone()[0]


@ONCE
async def test_nobody_can_stop_the_ingester_with_rubbish(broker, migrated_url, tmp_path):
    settings = await prepared(broker, migrated_url)
    with worker("ingester", settings, tmp_path) as process:
        await process.ready()
        async with publishing(settings) as publisher:
            for number in range(3_000):
                await publisher.send(SIGNALS, None, b"rubbish %d" % number)
            for url in URLS:
                await publisher.send(SIGNALS, None, encode(Signal(url, "cms", time.time())))
        async with reader(settings, PAGE_SIGNALS) as passed:
            await passed.until(lambda got: len(got) >= len(URLS))
        await process.ready()
    assert await letters(settings) < 3_000
