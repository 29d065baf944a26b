"""Producers that write in transactions: what they commit counts, and nobody waits for the rest."""

import asyncio
import uuid
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Producer
from prometheus_client import REGISTRY
from workers import settings_for, worker

from migrations.upgrade import migrate
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import Bandwidth, CrawlOutcome, PageUpdate
from shared.contracts.topics import BANDWIDTH, CRAWL_OUTCOMES, PAGE_UPDATES
from shared.runtime.consumer import BatchConsumer
from shared.runtime.follower import Follower
from shared.runtime.kafka import ensure_topics
from shared.runtime.precedence import Precedence

URLS = [f"https://host-{n % 9}.example/{n}" for n in range(100)]
HANGS_SECONDS = 600


@pytest.fixture
async def settings(apache_kafka):
    made = settings_for(
        apache_kafka.bootstrap_servers,
        f"tx-{uuid.uuid4().hex[:8]}",
        kafka_session_timeout_seconds=6.0,
    )
    await ensure_topics(made)
    return made


class Transactional:
    """A foreign producer in librdkafka."""

    def __init__(self, settings, timeout_seconds=60.0):
        self._settings = settings
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka_bootstrap_servers,
                "transactional.id": f"foreign-{uuid.uuid4().hex}",
                "transaction.timeout.ms": int(1000 * timeout_seconds),
            }
        )
        self._producer.init_transactions(30)

    def begin(self, topic, messages):
        """Write, without an end; the broker has all of it when this returns."""
        self._producer.begin_transaction()
        for message in messages:
            if isinstance(message, Bandwidth):
                place, key = 0, b"global"
            else:
                host = identify(message.url).host
                place, key = shard_of(host, self._settings.partitions), host.encode()
            self._producer.produce(
                self._settings.topic(topic.name), encode(message), key, partition=place
            )
        assert self._producer.flush(30) == 0

    def commit(self, topic, messages):
        self.begin(topic, messages)
        self._producer.commit_transaction(30)

    def abort(self, topic, messages):
        self.begin(topic, messages)
        self._producer.abort_transaction(30)


def crawls(urls, at=1.7e9):
    return [CrawlOutcome(url, at, result="changed") for url in urls]


def pages(urls):
    return [PageUpdate("upsert", url, updated_at=1.6e9) for url in urls]


class Recorder:
    """A handler that keeps what it gets."""

    def __init__(self):
        self.seen = Counter()
        self.reached = {}

    async def assigned(self, partitions):
        return {}

    async def revoked(self, partitions):
        pass

    async def handle(self, batch):
        for topic, partitions in batch.items():
            for records in partitions.values():
                self.seen.update((topic, record.value) for record in records)

    async def note(self, positions):
        self.reached |= positions

    def count(self, topic):
        return sum(n for (name, _), n in self.seen.items() if name == topic.name)


@asynccontextmanager
async def member(settings, recorder, **options):
    topics = (PAGE_UPDATES, CRAWL_OUTCOMES)
    consumer = BatchConsumer(
        settings, "readers", topics, recorder, reached=recorder.note, **options
    )
    await consumer.start()
    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.run(stopping))
    try:
        yield consumer
    finally:
        stopping.set()
        await asyncio.wait([running], timeout=10)
        running.cancel()
        await consumer.stop()


async def until(condition, seconds=60.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


def lag_of(topic):
    return REGISTRY.get_sample_value("freshet_consumer_lag_records", {"topic": topic.name})


async def test_what_is_committed_is_handled_and_what_is_given_up_is_not(settings):
    producer = await asyncio.to_thread(Transactional, settings)
    await asyncio.to_thread(producer.commit, CRAWL_OUTCOMES, crawls(URLS))
    await asyncio.to_thread(producer.abort, CRAWL_OUTCOMES, crawls(URLS, at=1.71e9))
    await asyncio.to_thread(producer.commit, CRAWL_OUTCOMES, crawls(URLS, at=1.72e9))
    await asyncio.to_thread(producer.abort, CRAWL_OUTCOMES, crawls(URLS, at=1.73e9))
    recorder = Recorder()
    async with member(settings, recorder):
        await until(lambda: len(recorder.seen) == 2 * len(URLS))
        # The ends of transactions, and what was given up, are no records; they are left behind.
        parts = {shard_of(identify(url).host, settings.partitions) for url in URLS}
        sizes = Counter(shard_of(identify(url).host, settings.partitions) for url in URLS)
        ends = {(CRAWL_OUTCOMES.name, p): 4 * sizes[p] + 4 for p in parts}
        await until(lambda: recorder.reached == ends)
        await until(lambda: lag_of(CRAWL_OUTCOMES) == 0)
    assert recorder.seen == {
        (CRAWL_OUTCOMES.name, encode(crawl)): 1 for crawl in crawls(URLS) + crawls(URLS, at=1.72e9)
    }


@pytest.mark.parametrize("hangs", [False, True], ids=["ended", "another one hangs"])
async def test_a_scheduler_catches_up_with_transactions(
    apache_kafka, settings, database_url, tmp_path, hangs
):
    settings = settings.model_copy(
        update={"database_url": type(settings.database_url)(database_url)}
    )
    settings.model_fields_set.add("database_url")
    await asyncio.to_thread(migrate, database_url, settings.partitions)
    producer = await asyncio.to_thread(Transactional, settings)
    await asyncio.to_thread(producer.commit, PAGE_UPDATES, pages(URLS))
    await asyncio.to_thread(producer.commit, CRAWL_OUTCOMES, crawls(URLS))
    await asyncio.to_thread(producer.abort, CRAWL_OUTCOMES, crawls(URLS, at=1.73e9))
    if hangs:
        hanging = await asyncio.to_thread(Transactional, settings, HANGS_SECONDS)
        await asyncio.to_thread(hanging.begin, CRAWL_OUTCOMES, crawls(URLS, at=1.74e9))
    with worker("scheduler", settings, tmp_path) as process:
        # All that it still waits for is a coordinator, whom nobody has started.
        await process.not_ready("waiting for the coordinator")


async def test_a_transaction_that_hangs_is_waited_for_until_its_time_is_up(settings):
    hanging = await asyncio.to_thread(Transactional, settings, 3.0)
    await asyncio.to_thread(hanging.begin, CRAWL_OUTCOMES, crawls(URLS[:1]))
    producer = await asyncio.to_thread(Transactional, settings)
    await asyncio.to_thread(producer.commit, CRAWL_OUTCOMES, crawls(URLS))
    recorder = Recorder()
    async with member(settings, recorder):
        # The broker ends it, and what came after it is read.
        await until(lambda: recorder.count(CRAWL_OUTCOMES) == len(URLS))
    assert set(recorder.seen.values()) == {1}


async def test_outcomes_do_not_wait_for_pages_whose_transaction_hangs(settings):
    producer = await asyncio.to_thread(Transactional, settings)
    hanging = await asyncio.to_thread(Transactional, settings, HANGS_SECONDS)
    await asyncio.to_thread(producer.commit, PAGE_UPDATES, pages(URLS))
    await asyncio.to_thread(hanging.begin, PAGE_UPDATES, pages(URLS))
    await asyncio.to_thread(producer.commit, CRAWL_OUTCOMES, crawls(URLS))
    recorder = Recorder()
    first = settings.topic(PAGE_UPDATES.name)
    precedence = Precedence(first, {settings.topic(CRAWL_OUTCOMES.name)})
    async with member(settings, recorder, holding=(precedence,)):
        await until(lambda: recorder.count(CRAWL_OUTCOMES) == len(URLS))
        assert recorder.count(PAGE_UPDATES) == len(URLS)


async def test_a_bandwidth_is_found_behind_many_that_were_given_up(settings):
    producer = await asyncio.to_thread(Transactional, settings)
    await asyncio.to_thread(producer.commit, BANDWIDTH, [Bandwidth(5.0, 1.7e9)])
    for _ in range(4):
        await asyncio.to_thread(producer.abort, BANDWIDTH, [Bandwidth(50.0, 1.7e9)])
    received = []
    follower = Follower(settings, BANDWIDTH, received.append, tail=3)
    await follower.start()
    try:
        assert [record.value for record in received] == [encode(Bandwidth(5.0, 1.7e9))]
        stopping = asyncio.Event()
        running = asyncio.create_task(follower.run(stopping))
        await asyncio.to_thread(producer.commit, BANDWIDTH, [Bandwidth(6.0, 1.7e9)])
        await asyncio.wait_for(follower.catch_up(), 30)
        assert received[-1].value == encode(Bandwidth(6.0, 1.7e9))
        stopping.set()
        await running
    finally:
        await follower.stop()
