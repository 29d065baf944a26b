"""The scheduler with a broker and a database: what it emits, and what a restart does not."""

import asyncio
import time
import uuid
from contextlib import asynccontextmanager

import psycopg
import pytest
from aiokafka import TopicPartition
from apache import ONCE
from page_batches import page_batch

from services.scheduler.flow import recovery, unanswered_pages
from services.scheduler.worker import Scheduler
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import (
    Allotment,
    CrawlOutcome,
    CrawlRequest,
    DemandCurve,
    HostLimit,
    Multipliers,
    PageUpdate,
)
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    DEMAND_CURVES,
    HOST_LIMITS,
    MULTIPLIERS,
    PAGE_PARAMETERS,
    PAGE_UPDATES,
)
from shared.runtime.kafka import ensure_topics, make_consumer
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.imports import import_pages
from shared.store.page_status import NEVER
from shared.store.unanswered import read_unanswered

SHARDS = 2
PAGES = 40
TIMEOUT, RETRY = 1.0, 3.0
"""Of those who are impatient, seconds."""


@pytest.fixture
async def settings(broker, migrated_database):
    database_url = await asyncio.to_thread(migrated_database, SHARDS)
    settings = load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        database_url=database_url,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=SHARDS,
        instance="one",
        kafka_session_timeout_seconds=6.0,
        default_host_crawls_per_second=100.0,
        report_seconds=0.2,
        work_conserving=False,
    )
    urls = [f"https://host{n % 8}.example/{n}" for n in range(PAGES)]
    await asyncio.to_thread(import_pages, database_url, SHARDS, [page_batch(urls)], now=time.time())
    await ensure_topics(settings)
    return settings


async def give_budget(publisher, crawls_per_second):
    now = time.time()
    shares = [Allotment(shard, 1 / SHARDS) for shard in range(SHARDS)]
    await publisher.send_global(
        MULTIPLIERS, Multipliers(1, now, now, 1e6, crawls_per_second, 0.0, shares)
    )


@asynccontextmanager
async def running(settings):
    scheduler = Scheduler(settings)
    await scheduler.open()
    loops = [asyncio.create_task(loop) for loop in scheduler.loops()]
    try:
        await until(lambda: any(t.done() for t in loops) or scheduler.not_ready() is None)
        yield scheduler
    finally:
        scheduler.stopping.set()
        await asyncio.gather(*loops)
        await scheduler.close()


async def until(condition, seconds=60.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def read_all(settings, topic, kind=None):
    """Every message that is on a topic now."""
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        name = settings.topic(topic.name)
        partitions = SHARDS if topic.partitioning == "shards" else 1
        tps = [TopicPartition(name, number) for number in range(partitions)]
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        found = []
        for tp in tps:
            while await consumer.position(tp) < ends[tp]:
                found += (await consumer.getmany(tp, timeout_ms=500)).get(tp, [])
        return found if kind is None else [decode(kind, record.value) for record in found]
    finally:
        await consumer.stop()


async def read_until(settings, topic, kind, count):
    async with asyncio.timeout(60):
        while len(found := await read_all(settings, topic, kind)) < count:
            await asyncio.sleep(0.1)
    return found


async def answer(publisher, request, **more):
    outcome = CrawlOutcome(
        request.url,
        request.requested_at + 0.01,
        host=request.host,
        request_id=request.request_id,
        result="unchanged",
        **more,
    )
    await publisher.send_for_host(CRAWL_OUTCOMES, request.host, outcome)


@ONCE
async def test_a_crawl_counts_though_its_page_is_not_in_the_database_yet(settings, publisher):
    """As where an estimator stood still: the page comes late among many, its outcome at once."""
    await give_budget(publisher, 1.0)
    host, padding = "host1.example", b"x" * 50_000
    urls = [f"https://{host}/late/{number}" for number in range(60)]
    shard, crawled_at = shard_of(host, SHARDS), time.time()
    for url in urls:
        value = encode(PageUpdate("upsert", url, updated_at=crawled_at - 60.0))
        value = value[:-1] + b',"unknown":"' + padding + b'"}'
        await publisher.send(PAGE_UPDATES, host.encode(), value, partition=shard)
    outcome = CrawlOutcome(urls[-1], crawled_at, host=host, result="unchanged")
    await publisher.send_for_host(CRAWL_OUTCOMES, host, outcome)
    await publisher.flush()
    few = settings.model_copy(update={"fetch_buffer_bytes": 1024 * 1024})
    async with running(few) as scheduler:
        known = scheduler._handler.shards[shard]
        crawls = [known.pages["last_crawled_at"][known.row_of(identify(u).page_id)] for u in urls]
    assert crawls == [NEVER] * (len(urls) - 1) + [crawled_at]


async def test_every_new_page_is_asked_for_once_whatever_restarts(settings, publisher):
    await give_budget(publisher, 500.0)
    async with running(settings):
        requests = await read_until(settings, CRAWL_REQUESTS, CrawlRequest, PAGES)
        for request in requests[: PAGES // 2]:
            await answer(publisher, request)
        await publisher.flush()
        await asyncio.sleep(0.5)
    assert {request.reason for request in requests} == {"new"}
    async with running(settings):
        new = PageUpdate("upsert", "https://host1.example/fresh", updated_at=time.time())
        await publisher.send_for_host(PAGE_UPDATES, "host1.example", new)
        requests = await read_until(settings, CRAWL_REQUESTS, CrawlRequest, PAGES + 1)
        await asyncio.sleep(0.5)
    requests = await read_all(settings, CRAWL_REQUESTS, CrawlRequest)
    assert len({request.page_id for request in requests}) == len(requests) == PAGES + 1
    assert len({request.request_id for request in requests}) == PAGES + 1


@ONCE
async def test_it_reports_and_explains_and_puts_bad_parameters_aside(settings, publisher):
    await publisher.send_for_host(HOST_LIMITS, "host0.example", HostLimit("host0.example", 0.0))
    await publisher.send(PAGE_PARAMETERS, b"host0.example", b'{"page_id": -1}', partition=0)
    await publisher.flush()
    await give_budget(publisher, 500.0)
    async with running(settings) as scheduler:
        requests = await read_until(settings, CRAWL_REQUESTS, CrawlRequest, PAGES * 7 // 8)
        curves = await read_until(settings, DEMAND_CURVES, DemandCurve, 2 * SHARDS)
        limited = await scheduler.describe_page("https://host0.example/0")
        other = await scheduler.describe_page("https://HOST1.example/1#part")
        unknown = await scheduler.describe_page("https://host1.example/none")
        shards = await scheduler.describe_shards()
    assert all(request.host != "host0.example" for request in requests)
    assert {curve.shard for curve in curves} == set(range(SHARDS))
    assert sum(curve.pages for curve in curves[-SHARDS:]) == PAGES
    assert limited["class"] == "new"
    assert limited["host"]["max_crawls_per_second"] == 0.0
    assert other["in_flight"]
    assert unknown is None
    assert sum(shard["pages"] for shard in shards) == PAGES
    letters = await read_all(settings, DEAD_LETTERS)
    assert [dict(letter.headers)["stage"] for letter in letters] == [b"scheduler"]


@ONCE
async def test_a_slow_host_is_left_alone_for_as_long_as_it_asks(settings, publisher):
    await give_budget(publisher, 20.0)
    async with running(settings) as scheduler:
        first = (await read_until(settings, CRAWL_REQUESTS, CrawlRequest, 1))[0]
        await answer(publisher, first, http_status=429, retry_after_seconds=600.0)
        await publisher.flush()
        async with asyncio.timeout(30):
            while True:
                page = await scheduler.describe_page(first.url)
                if page["host"]["blocked_until"] is not None:
                    break
                await asyncio.sleep(0.05)
    assert page["host"]["blocked_until"] == pytest.approx(first.requested_at + 600.01)
    assert not page["in_flight"]


@ONCE
async def test_pages_that_are_imported_into_the_database_are_asked_for(settings, publisher):
    """No estimator runs, so the import goes straight into the database, behind Kafka's back."""
    url = settings.database_url.get_secret_value()
    await give_budget(publisher, 500.0)
    async with running(settings):
        await read_until(settings, CRAWL_REQUESTS, CrawlRequest, PAGES)
        new = [f"https://host{n % 12}.example/imported/{n}" for n in range(2500)]
        await asyncio.to_thread(import_pages, url, SHARDS, [page_batch(new)], now=time.time())
        found = await read_until(settings, CRAWL_REQUESTS, CrawlRequest, PAGES + 2500)
    assert len({request.url for request in found}) == len(found) == PAGES + 2500
    # A scheduler that starts has them in what it loads.
    async with running(settings) as again:
        shards = again._handler.shards.values()
        assert sum(shard.count for shard in shards) == PAGES + 2500
        assert {shard.imported.number for shard in shards} == {2}


@pytest.fixture
def impatient(settings, monkeypatch):
    """Requests time out soon, and what nobody answers is not found among the last ones."""
    monkeypatch.setattr(unanswered_pages, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(recovery, "UNWRITTEN_SECONDS", 0.0)
    monkeypatch.setattr(recovery, "_CLOCK_SKEW_SECONDS", 0.0)
    quick = {
        "request_timeout_seconds": TIMEOUT,
        "failed_retry_seconds": RETRY,
        "least_interval_seconds": 0.0,
    }
    return settings.model_copy(update=quick)


def unanswered(settings):
    """Page id → how many requests in a row nobody has answered, as the database knows."""
    found = {}
    with connect(settings.database_url.get_secret_value(), "test") as connection:
        for shard in range(SHARDS):
            rows = read_unanswered(connection, shard)
            found |= dict(zip(rows.page_ids.tolist(), rows.requests.tolist(), strict=True))
    return found


@ONCE
async def test_pages_that_nobody_answers_wait_on_though_their_scheduler_is_another_one(
    impatient, publisher
):
    await give_budget(publisher, 500.0)
    async with running(impatient):
        await until(lambda: list(unanswered(impatient).values()) == [2] * PAGES)
        requests = await read_all(impatient, CRAWL_REQUESTS, CrawlRequest)
    last = {request.page_id: request.requested_at for request in requests}
    assert len(requests) == 2 * len(last) == 2 * PAGES
    async with running(impatient) as scheduler:
        page = await scheduler.describe_page(requests[0].url)
        found = await read_until(impatient, CRAWL_REQUESTS, CrawlRequest, 3 * PAGES)
    assert page["unanswered"] == 2
    third = {r.page_id: r.requested_at for r in found if r.requested_at > last[r.page_id]}
    assert third.keys() == last.keys()
    waited = [third[page_id] - last[page_id] for page_id in last]
    assert min(waited) >= TIMEOUT + 2 * RETRY - 1e-3


@ONCE
async def test_of_pages_that_are_answered_in_the_end_nothing_is_left_in_the_database(
    impatient, publisher
):
    await give_budget(publisher, 500.0)
    async with running(impatient):
        await until(lambda: len(unanswered(impatient)) == PAGES)
        for request in await read_all(impatient, CRAWL_REQUESTS, CrawlRequest):
            await answer(publisher, request)
        await publisher.flush()
        await until(lambda: not unanswered(impatient))


@ONCE
async def test_picking_goes_on_while_nothing_can_be_written_of_unanswered_pages(
    impatient, publisher, monkeypatch
):
    def away(*_):
        raise psycopg.OperationalError("the server is away")

    write = unanswered_pages.write_unanswered
    monkeypatch.setattr(unanswered_pages, "write_unanswered", away)
    await give_budget(publisher, 500.0)
    async with running(impatient):
        await read_until(impatient, CRAWL_REQUESTS, CrawlRequest, 2 * PAGES)
        assert unanswered(impatient) == {}
        monkeypatch.setattr(unanswered_pages, "write_unanswered", write)
        await until(lambda: list(unanswered(impatient).values()) == [2] * PAGES)
