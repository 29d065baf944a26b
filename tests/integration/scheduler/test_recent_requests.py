"""What is in flight when shards change hands, from the tail of `crawl-requests`."""

import asyncio
import itertools
import time
import uuid
from dataclasses import replace

import numpy as np
import pytest

from services.scheduler.flow.loading import shard_rules
from services.scheduler.flow.recovery import read_recent_requests, restore
from services.scheduler.picking.calendar import make_shard
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlRequest, PageUpdate
from shared.contracts.request_ids import microseconds, request_id_of
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.clock import SystemClock
from shared.runtime.kafka import ensure_topics, make_producer
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


class Past:
    """Requests of long ago, on a topic that goes by the times of who writes."""

    def __init__(self, settings, producer):
        self.settings, self._producer = settings, producer
        self.began = time.time()

    async def asked(self, seconds_ago, to_answer_within, count=1):
        """Pages that were asked for then."""
        urls = [f"https://{HOST}/{seconds_ago}/{number}" for number in range(count)]
        at = self.began - seconds_ago
        for page in map(identify, urls):
            made_by = request_id_of(0, page.page_id, microseconds(at))
            request = CrawlRequest(
                *(
                    made_by,
                    page.page_id,
                    page.url,
                    HOST,
                    at,
                    at + to_answer_within,
                    1.0,
                    1.0,
                    "value",
                )
            )
            topic = self.settings.topic(CRAWL_REQUESTS.name)
            await self._producer.send_and_wait(
                topic, encode(request), HOST.encode(), 0, timestamp_ms=int(at * 1000)
            )
        return urls

    async def found(self, request_timeout=60.0):
        """What a scheduler with another time-out finds when it starts."""
        settings = self.settings.model_copy(update={"request_timeout_seconds": request_timeout})
        return (await read_recent_requests(settings, {0}))[0]


@pytest.fixture
async def past(broker):
    settings = load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=1,
    )
    await ensure_topics(settings, (replace(CRAWL_REQUESTS, config={"retention.ms": "-1"}),))
    async with make_producer(settings) as producer:
        yield Past(settings, producer)


def urls_of(requests):
    return [request.url for request in requests]


def one_after_the_other(*asked):
    return list(itertools.chain(*asked))


async def test_after_a_shorter_timeout_is_set_nothing_is_asked_for_that_is_in_flight(past):
    """Crawlers have been told to answer within ten minutes, whatever is set by now."""
    await past.asked(700.0, 600.0)
    urls = await past.asked(200.0, 600.0, count=20)
    requests = await past.found()
    assert set(urls) <= set(urls_of(requests))

    settings, now = past.settings, past.began
    shard = make_shard(0, shard_rules(settings, SystemClock()))
    shard.is_caught_up = True
    for url in urls:
        shard.upsert(identify(url), PageUpdate("upsert", url), now - 1e6)
    assert restore(shard, requests) == len(urls)
    assert (shard.selector.select(now + np.arange(1.0, 50.0), 1.0, 0.0)["row"] < 0).all()


async def test_a_shorter_timeout_may_have_been_set_some_time_ago(past):
    """Who starts twice since then finds at first only requests of the time-out that is set now."""
    early = [await past.asked(seconds, 600.0) for seconds in (650.0, 550.0, 300.0)]
    late = [await past.asked(seconds, 60.0) for seconds in (190.0, 120.0, 70.0, 1.0)]
    assert urls_of(await past.found()) == one_after_the_other(*early[1:], *late)


async def test_where_the_timeout_was_always_the_same_no_more_is_read(past):
    for seconds in (4000.0, 900.0, 300.0, 110.0):
        await past.asked(seconds, 60.0)
    late = [await past.asked(seconds, 60.0) for seconds in (90.0, 30.0)]
    assert urls_of(await past.found()) == one_after_the_other(*late)


async def test_of_a_request_that_waits_for_ever_it_is_known_for_a_day(past):
    """No time-out is longer: somebody else has written it."""
    await past.asked(90_000.0, 1e9)
    late = [await past.asked(80_000.0, 1e9), await past.asked(1.0, 60.0)]
    assert urls_of(await past.found()) == one_after_the_other(*late)
