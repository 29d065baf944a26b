"""A long backlog of pages: what is said of them waits until the last one is known."""

import asyncio
import uuid

import pytest
from workers import settings_for

from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import CrawlOutcome, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.consumer import BatchConsumer
from shared.runtime.kafka import ensure_topics
from shared.runtime.precedence import Precedence
from shared.runtime.publisher import Publisher

PAGES = 40
PADDING = b"x" * 50_000
"""A page is so long that few come at a time."""

SLOW_SECONDS = 1.0
"""A batch of pages takes so long: all of them, a good deal longer than ten seconds."""

HOST = "host.example"


class SlowLearner:
    """A handler that takes its time for pages, and notes what came in which order."""

    def __init__(self):
        self.order = []

    async def assigned(self, partitions):
        return {}

    async def revoked(self, partitions):
        pass

    async def handle(self, batch):
        for topic in sorted(batch, reverse=True):  # pages before outcomes
            for records in batch[topic].values():
                self.order += [topic] * len(records)
        if PAGE_UPDATES.name in batch:
            await asyncio.sleep(SLOW_SECONDS)


@pytest.mark.long
async def test_an_outcome_waits_for_its_page_however_long(local_broker):
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"first-{uuid.uuid4().hex[:8]}",
        fetch_buffer_bytes=1024 * 1024,
    )
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    for number in range(PAGES):
        page = PageUpdate("upsert", f"https://{HOST}/{number}", updated_at=1.6e9)
        value = encode(page)[:-1] + b',"unknown":"' + PADDING + b'"}'
        shard = shard_of(HOST, settings.partitions)
        await (await publisher.send(PAGE_UPDATES, HOST.encode(), value, partition=shard))
    crawl = CrawlOutcome(f"https://{HOST}/{PAGES - 1}", 1.7e9, result="changed")
    await publisher.send_for_host(CRAWL_OUTCOMES, HOST, crawl)
    await publisher.flush()
    await publisher.stop()

    learner = SlowLearner()
    precedence = Precedence(
        settings.topic(PAGE_UPDATES.name), {settings.topic(CRAWL_OUTCOMES.name)}
    )
    consumer = BatchConsumer(
        settings, "learners", (PAGE_UPDATES, CRAWL_OUTCOMES), learner, holding=(precedence,)
    )
    await consumer.start()
    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.run(stopping))
    try:
        async with asyncio.timeout(120):
            while len(learner.order) <= PAGES:
                await asyncio.sleep(0.05)
    finally:
        stopping.set()
        await asyncio.wait([running], timeout=10)
        running.cancel()
        await consumer.stop()
    assert learner.order == [PAGE_UPDATES.name] * PAGES + [CRAWL_OUTCOMES.name]
