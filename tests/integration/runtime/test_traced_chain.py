"""One trace from a producer's signal to the outcome that is committed, through real servers."""

import asyncio
import time
import uuid
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from page_batches import page_batch
from workers import reader

from migrations.upgrade import migrate
from services.estimator.worker import Estimator
from services.ingester.worker import Ingester
from services.scheduler.worker import Scheduler
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify
from shared.contracts.messages import Allotment, CrawlOutcome, CrawlRequest, Multipliers, Signal
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    MULTIPLIERS,
    PAGE_SIGNALS,
    SIGNALS,
)
from shared.runtime import tracing
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import load_settings
from shared.runtime.tracing import APPLIED, RECEIVED, REQUESTED, STORED, Mark, mark_in
from shared.store.imports import import_pages

pytestmark = pytest.mark.slow(15)

SHARDS = 2
PAGES = 20
PAGE = identify("https://host3.example/3")
PRODUCER = Mark(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
BEGUN_BY_US = 1e-9
"""A share of which nothing is drawn; but the first trace of a producer goes on."""


@pytest.fixture
def memory(monkeypatch):
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "_load_exporter", lambda *_: exporter)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    return exporter


async def make_settings(broker, database_url, share):
    settings = load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        database_url=database_url,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=SHARDS,
        instance="one",
        default_host_crawls_per_second=100.0,
        trace_share=share,
    )
    await asyncio.to_thread(migrate, database_url, SHARDS)
    urls = [f"https://host{n}.example/{n}" for n in range(PAGES)]
    await asyncio.to_thread(import_pages, database_url, SHARDS, [page_batch(urls)], now=time.time())
    await ensure_topics(settings)
    return settings


@asynccontextmanager
async def running(worker):
    await worker.open()
    loops = [asyncio.create_task(loop) for loop in worker.loops()]
    try:
        yield worker
    finally:
        worker.stopping.set()
        await asyncio.gather(*loops)
        await worker.close()
        if worker.tracing is not None:
            worker.tracing.close()


async def until(condition, seconds=90.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def go_through(settings, publisher, is_applied):
    """Send a traced signal, wait until a scheduler has it, have all pages crawled, and answer with
    the header of each request; the records of page-signals and of crawl-requests."""
    signal = encode(Signal(PAGE.url, "cms"))
    await publisher.send(SIGNALS, None, signal, headers=PRODUCER.headers())
    await publisher.flush()
    async with (
        reader(settings, PAGE_SIGNALS) as signals,
        reader(settings, CRAWL_REQUESTS) as requests,
    ):
        await signals.until(lambda got: len(got) >= 1)
        await is_applied()
        now = time.time()
        shares = [Allotment(shard, 1 / SHARDS) for shard in range(SHARDS)]
        await publisher.send_global(MULTIPLIERS, Multipliers(1, now, now, 1e-9, 50.0, 0.0, shares))
        await requests.until(lambda got: len(got) >= PAGES)
    for record in requests.records:
        request = decode(CrawlRequest, record.value)
        outcome = CrawlOutcome(
            request.url, time.time(), request.host, request.request_id, "unchanged"
        )
        await publisher.send(
            CRAWL_OUTCOMES,
            record.key,
            encode(outcome),
            partition=record.partition,
            headers=record.headers,
        )
    await publisher.flush()
    return signals.records, requests.records


@asynccontextmanager
async def system(settings):
    publisher = Publisher(settings)
    await publisher.start()
    try:
        async with AsyncExitStack() as stack:
            kinds = (Ingester, Scheduler, Estimator)
            workers = [await stack.enter_async_context(running(kind(settings))) for kind in kinds]
            yield publisher, workers
    finally:
        await publisher.stop()


async def test_a_producers_trace_goes_on_to_the_committed_outcome(
    local_broker, database_url, memory
):
    settings = await make_settings(local_broker, database_url, BEGUN_BY_US)

    def seen(name):
        return [span for span in memory.get_finished_spans() if span.name == name]

    async with system(settings) as (publisher, _):
        _, requests = await go_through(settings, publisher, lambda: until(lambda: seen(APPLIED)))
        await until(lambda: seen(STORED))

    carrying = [record for record in requests if mark_in(record.headers) is not None]
    assert [decode(CrawlRequest, record.value).page_id for record in carrying] == [PAGE.page_id]
    chain = [seen(name) for name in (RECEIVED, APPLIED, REQUESTED, STORED)]
    assert [len(spans) for spans in chain] == [1, 1, 1, 1]
    parent = PRODUCER.span_id
    for [span], worker in zip(
        chain, ("ingester", "scheduler", "scheduler", "estimator"), strict=True
    ):
        assert span.context.trace_id == PRODUCER.trace_id
        assert span.parent.span_id == parent
        assert span.attributes["freshet.page_id"] == PAGE.page_id
        assert span.attributes["freshet.host"] == PAGE.host
        assert span.resource.attributes["service.name"] == f"freshet-{worker}"
        assert span.start_time <= span.end_time
        parent = span.context.span_id
    assert chain[3][0].attributes["freshet.result"] == "unchanged"


async def test_no_header_is_anywhere_while_traces_are_off(local_broker, database_url, memory):
    settings = await make_settings(local_broker, database_url, 0.0)

    async with system(settings) as (publisher, workers):
        assert [worker.tracing for worker in workers] == [None] * 3
        signals, requests = await go_through(settings, publisher, lambda: asyncio.sleep(1.0))

    assert [record.headers for record in (*signals, *requests)] == [()] * (1 + PAGES)
    assert memory.get_finished_spans() == ()
