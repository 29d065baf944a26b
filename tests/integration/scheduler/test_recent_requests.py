"""What is in flight when shards change hands, from the tail of `crawl-requests`."""

import asyncio
import time
import uuid

import pytest

from services.scheduler.flow.recovery import read_recent_requests
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import request_id_of
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.kafka import ensure_topics
from shared.runtime.settings import load_settings

HOST = "host.example"
URL = f"https://{HOST}/"


@pytest.fixture
async def settings(broker):
    settings = load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=1,
    )
    await ensure_topics(settings, (CRAWL_REQUESTS,))
    return settings


async def ask(publisher, page_id):
    now = time.time()
    request = CrawlRequest(
        request_id_of(0, page_id, 1), page_id, URL, HOST, now, now + 120.0, 1.0, 1.0, "value"
    )
    await publisher.send_for_host(CRAWL_REQUESTS, HOST, request)
    await publisher.flush()


async def test_what_was_asked_for_until_the_shards_are_loaded_counts_once(settings, publisher):
    await ask(publisher, 1)
    loaded = asyncio.Event()
    reading = asyncio.create_task(read_recent_requests(settings, {0}, loaded))
    await asyncio.sleep(0.3)
    await ask(publisher, 2)
    assert not reading.done()
    loaded.set()
    assert [request.page_id for request in (await reading)[0]] == [1, 2]


async def test_shards_without_requests_have_none_in_flight(settings):
    assert await read_recent_requests(settings, {0}) == {0: []}
