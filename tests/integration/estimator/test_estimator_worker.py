"""The estimator's process parts on a real broker and a real PostgreSQL."""

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from services.estimator.worker import Estimator
from shared.contracts.codec import decode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import CrawlOutcome, PageParameters, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, DEAD_LETTERS, PAGE_PARAMETERS, PAGE_UPDATES
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.store.snapshot import load_shard
from shared.store.status import store_status

SHARDS = 4
NOW = 1_700_000_000.0
DAY = 86_400.0
URLS = [f"https://host-{n % 7}.example/page/{n}" for n in range(50)]


@pytest.fixture
async def settings(migrated_url, broker):
    settings = Settings(
        database_url=migrated_url,
        partitions=SHARDS,
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"estimator-{uuid.uuid4().hex}-",
        instance="one",
    )
    await ensure_topics(settings)
    return settings


async def until_applied(settings, topic, count):
    while True:
        status = await asyncio.to_thread(
            store_status, settings.database_url.get_secret_value(), NOW
        )
        if status["positions"].get("estimator", {}).get(topic, 0) >= count:
            return
        await asyncio.sleep(0.05)


async def all_of(settings, topic, partitions):
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka_bootstrap_servers)
    await consumer.start()
    try:
        tps = [TopicPartition(settings.topic(topic.name), p) for p in range(partitions)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        ends = await consumer.end_offsets(tps)
        found = {tp.partition: [] for tp in tps}
        while sum(map(len, found.values())) < sum(ends.values()):
            for tp, records in (await consumer.getmany(timeout_ms=100)).items():
                found[tp.partition] += records
        return found
    finally:
        await consumer.stop()


async def run_until(settings, topic, count):
    estimator = Estimator(settings)
    await estimator.open()
    loops = [asyncio.create_task(loop) for loop in estimator.loops()]
    try:
        await asyncio.wait_for(until_applied(settings, topic, count), 60)
        assert estimator.not_ready() is None
    finally:
        estimator.stopping.set()
        await asyncio.gather(*loops)
        await estimator.close()


async def test_it_reads_writes_and_resumes(settings):
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for url in URLS:
            message = PageUpdate("upsert", url, updated_at=NOW)
            await publisher.send_for_host(PAGE_UPDATES, identify(url).host, message)
        await publisher.flush()
        await run_until(settings, PAGE_UPDATES.name, len(URLS))
        for day in range(1, 4):
            for url in URLS:
                message = CrawlOutcome(url, NOW + day * DAY, result="changed")
                await publisher.send_for_host(CRAWL_OUTCOMES, identify(url).host, message)
        bad = b"not json"
        await (await publisher.send(CRAWL_OUTCOMES, b"host", bad, partition=0))
        await run_until(settings, CRAWL_OUTCOMES.name, 3 * len(URLS) + 1)
    finally:
        await publisher.stop()
    announced = await all_of(settings, PAGE_PARAMETERS, SHARDS)
    for shard in range(SHARDS):
        snapshot = load_shard(settings.database_url.get_secret_value(), shard)
        here = [url for url in URLS if shard_of(identify(url).host, SHARDS) == shard]
        assert snapshot.pages.page_ids.size == len(here)
        assert snapshot.positions[PAGE_PARAMETERS.name, shard] == len(announced[shard])
        last = {m.page_id: m for m in (decode(PageParameters, r.value) for r in announced[shard])}
        for row, page_id in enumerate(snapshot.pages.page_ids.tolist()):
            assert last[page_id].unsignalled_change_rate == pytest.approx(
                snapshot.pages.unsignalled_change_rate[row], rel=0.05
            )
    [letter] = (await all_of(settings, DEAD_LETTERS, 1))[0]
    assert letter.value == bad
    assert dict(letter.headers)["stage"] == b"estimator"
    assert b"not a valid CrawlOutcome" in dict(letter.headers)["error"]
