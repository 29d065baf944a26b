"""Shards in two databases, one of which goes away: those of the other do not notice."""

import asyncio
import contextlib
import time
import uuid
from collections import Counter

import psutil
import psycopg
import pytest
from workers import settings_for, worker

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.cli.positions import places as find_places
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import Allotment, CrawlOutcome, CrawlRequest, Multipliers, PageUpdate
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    MULTIPLIERS,
    PAGE_UPDATES,
)
from shared.runtime.databases import databases_of
from shared.runtime.kafka import ensure_topics, make_consumer
from shared.runtime.publisher import Publisher

pytestmark = [pytest.mark.slow(60), pytest.mark.postgres]

SHARDS = 4
PAGES = 48
HOME, OTHER = range(2), range(2, 4)
PATIENCE_SECONDS = 90.0
URLS = [f"https://host-{n % 16}.example/{n}" for n in range(PAGES)]


@pytest.fixture
def servers(scratch_dir):
    """Two servers for one test alone: the home, and that of the other half of the shards."""
    both = [EmbeddedPostgres(scratch_dir / f"pg-{uuid.uuid4().hex[:8]}") for _ in range(2)]
    for server in both:
        server.start()
    yield both
    for server in both:
        server.stop()


@pytest.fixture
async def settings(local_broker, servers):
    home, other = (server.uri for server in servers)
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"two-{uuid.uuid4().hex[:8]}",
        databases=f"0-1={home},2-3={other}",
        partitions=SHARDS,
        least_interval_seconds=0.0,
        default_host_crawls_per_second=100.0,
        kafka_session_timeout_seconds=6.0,
    )
    for database in databases_of(settings).each:
        await asyncio.to_thread(migrate, database.url, SHARDS, database.held)
    await ensure_topics(settings)
    return settings


class Fleet:
    """Answers every request, and counts by shard what it answered."""

    def __init__(self, settings):
        self._settings = settings
        self.publisher = Publisher(settings)
        self.answered = Counter()
        self._stopping = asyncio.Event()

    async def __aenter__(self):
        await self.publisher.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_):
        await self.stop()
        await self.publisher.stop()

    async def stop(self):
        self._stopping.set()
        await self._task

    async def add_pages(self):
        for url in URLS:
            host = identify(url).host
            message = encode(PageUpdate("upsert", url, updated_at=1.7e9))
            place = shard_of(host, SHARDS)
            await self.publisher.send(PAGE_UPDATES, host.encode(), message, partition=place)
        await self.publisher.flush()

    async def give_budget(self, crawls_per_second):
        now = time.time()
        shares = [Allotment(shard, 1 / SHARDS) for shard in range(SHARDS)]
        await self.publisher.send_global(
            MULTIPLIERS, Multipliers(1, now, now, 1e6, crawls_per_second, 0.0, shares)
        )

    async def _run(self):
        consumer = make_consumer(self._settings, "fleet", auto_offset_reset="earliest")
        await consumer.start()
        consumer.subscribe([self._settings.topic(CRAWL_REQUESTS.name)])
        try:
            while not self._stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        await self._answer(record)
                await self.publisher.flush()
        finally:
            await consumer.stop()

    async def _answer(self, record):
        request = decode(CrawlRequest, record.value)
        outcome = CrawlOutcome(
            request.url, time.time(), result="unchanged", request_id=request.request_id
        )
        shard, host = record.partition, request.host.encode()
        await self.publisher.send(CRAWL_OUTCOMES, host, encode(outcome), partition=shard)
        self.answered[shard] += 1


def crawls(server):
    """Shard → crawls that are applied; None: the server is away."""
    try:
        with psycopg.connect(server.uri) as connection:
            query = "SELECT shard, sum(crawls)::int8 FROM pages GROUP BY shard"
            return dict(connection.execute(query).fetchall())
    except psycopg.OperationalError:
        return None


async def until(condition, *processes):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await asyncio.to_thread(condition):
        for process in processes:
            assert process.poll() is None, process.log
        assert time.monotonic() < deadline, "\n".join(process.log[-8_000:] for process in processes)
        await asyncio.sleep(0.1)


async def go_on(fleet, server, shards, *processes):
    """Wait until every one of these shards has been crawled more, and that is applied."""
    before, answered = await asyncio.to_thread(crawls, server), dict(fleet.answered)

    def more():
        now = crawls(server)
        return now is not None and all(
            now.get(n, 0) > before.get(n, 0) + 3 and fleet.answered[n] > answered.get(n, 0) + 3
            for n in shards
        )

    await until(more, *processes)


async def dead_letters(settings):
    consumer = make_consumer(settings, None, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.subscribe([settings.topic(DEAD_LETTERS.name)])
        found = await consumer.getmany(timeout_ms=2_000)
        return [record.headers for records in found.values() for record in records]
    finally:
        await consumer.stop()


@contextlib.contextmanager
def workers(settings, folder):
    folder.mkdir(exist_ok=True)
    with (
        worker("estimator", settings, folder) as estimator,
        worker("scheduler", settings, folder) as scheduler,
    ):
        yield estimator, scheduler


@contextlib.contextmanager
def hanging(server):
    """A server whose processes all stand still: it takes connections, and answers nothing."""
    postmaster = psutil.Process(server.process_id)
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(processes):
            process.resume()


@contextlib.contextmanager
def stopped(server):
    """A server that is not there."""
    server.stop()
    yield
    server.start()


@pytest.mark.parametrize(
    ("gone", "home_goes", "says"),
    [
        pytest.param(stopped, False, "is away", id="the other is stopped"),
        pytest.param(stopped, True, "is away", id="the home is stopped"),
        pytest.param(hanging, False, "has not answered", id="the other hangs"),
    ],
)
async def test_shards_of_one_database_go_on_while_another_is_away(
    settings, servers, tmp_path, gone, home_goes, says
):
    home, other = servers
    away, its_shards = (home, HOME) if home_goes else (other, OTHER)
    there, others = (other, OTHER) if home_goes else (home, HOME)
    async with Fleet(settings) as fleet:
        await fleet.add_pages()
        await fleet.give_budget(40.0)
        with workers(settings, tmp_path) as processes:
            await asyncio.gather(*(process.ready() for process in processes))
            for server, shards in ((home, HOME), (other, OTHER)):
                await go_on(fleet, server, shards, *processes)
                assert set(crawls(server)) == set(shards)

            with gone(away):
                for _ in range(4):
                    await go_on(fleet, there, others, *processes)
                await processes[0].not_ready(says)
                await go_on(fleet, there, others, *processes)

            await go_on(fleet, away, its_shards, *processes)
            await asyncio.gather(*(process.ready() for process in processes))
            await fleet.stop()

            def all_applied():
                return (crawls(home) | crawls(other)) == dict(fleet.answered)

            await until(all_applied, *processes)
            await until_positions_are_well(settings)
            assert set(fleet.answered) == {*HOME, *OTHER}
    assert await dead_letters(settings) == []


async def until_positions_are_well(settings):
    """`freshet positions` sees all of both databases: nothing waits, and nothing is broken."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found, _ = await find_places(settings)
            places = [p for p in found if p.topic == CRAWL_OUTCOMES.name]
            ours = {place.partition: place for place in places if place.consumer == "estimator"}
            assert ours.keys() == {*HOME, *OTHER}
            if all(place.lag == 0 and place.position for place in ours.values()):
                return
            await asyncio.sleep(0.2)


@pytest.mark.long
async def test_workers_that_start_without_one_database_take_up_the_shards_of_the_other(
    settings, servers, tmp_path
):
    home, other = servers
    async with Fleet(settings) as fleet:
        await fleet.add_pages()
        await fleet.give_budget(40.0)
        other.stop()
        with workers(settings, tmp_path) as processes:
            for _ in range(3):
                await go_on(fleet, home, HOME, *processes)
            assert not set(fleet.answered) & set(OTHER)
            await processes[0].not_ready("is away")
            await processes[1].not_ready("cannot be loaded")

            await asyncio.to_thread(other.start)
            await go_on(fleet, other, OTHER, *processes)
            await asyncio.gather(*(process.ready() for process in processes))
            await fleet.stop()

            def all_applied():
                return (crawls(home) | crawls(other)) == dict(fleet.answered)

            await until(all_applied, *processes)
    assert await dead_letters(settings) == []


async def test_a_worker_that_knows_of_one_database_only_refuses_it(settings, servers, tmp_path):
    alone = settings.model_copy(update={"databases": None})
    alone.model_fields_set.discard("databases")
    for name in ("estimator", "scheduler"):
        with worker(name, alone, tmp_path) as process:
            await until(lambda: process.poll() is not None)
            assert "shards do not move from one database to another" in process.log
