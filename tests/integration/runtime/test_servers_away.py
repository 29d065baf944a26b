"""A database or a broker that is away, slow or hanging: the workers wait, and nothing is lost."""

import asyncio
import time
import uuid

import psutil
import psycopg
import pytest
from aiokafka import TopicPartition
from apache import OWN_ONCE
from workers import WorkerProcess, settings_for, worker

from migrations.upgrade import migrate
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageUpdate, Signal
from shared.contracts.topics import DEAD_LETTERS, PAGE_SIGNALS, PAGE_UPDATES, SIGNALS
from shared.runtime.kafka import ensure_topics, make_consumer, partitions_of
from shared.runtime.publisher import Publisher

pytestmark = pytest.mark.slow(10)

PATIENCE_SECONDS = 60.0
MEGABYTE = 1024 * 1024


async def prepared(broker, database_url, **more):
    settings = settings_for(
        broker.bootstrap_servers,
        f"away-{uuid.uuid4().hex[:8]}",
        **({"database_url": database_url} | more),
    )
    await asyncio.to_thread(migrate, database_url, settings.partitions)
    await ensure_topics(settings)
    return settings


async def publish_pages(settings, numbers, padding=0):
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for number in numbers:
            url = f"https://host-{number % 9}.example/{number}"
            host = identify(url).host
            message = encode(PageUpdate("upsert", url, updated_at=1.7e9))
            value = message[:-1] + b',"unknown":"' + b"x" * padding + b'"}'
            shard = shard_of(host, settings.partitions)
            await publisher.send(PAGE_UPDATES, host.encode(), value, partition=shard)
        await publisher.flush()
    finally:
        await publisher.stop()


def stored(settings):
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute("SELECT count(*) FROM pages").fetchone()[0]


async def until_stored(settings, count, process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := await asyncio.to_thread(stored, settings)) != count:
        assert process.poll() is None, process.log
        assert time.monotonic() < deadline, f"{found} of {count}:\n{process.log}"
        await asyncio.sleep(0.05)


async def written(settings, topic):
    """How many records a topic has."""
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        name, count = settings.topic(topic.name), partitions_of(topic, settings)
        tps = [TopicPartition(name, number) for number in range(count)]
        return sum((await consumer.end_offsets(tps)).values())
    finally:
        await consumer.stop()


async def test_a_database_that_is_away_is_waited_for(local_broker, own_postgres, tmp_path):
    settings = await prepared(local_broker, own_postgres.uri)
    with worker("estimator", settings, tmp_path) as process:
        await process.ready()
        await publish_pages(settings, range(100))
        await until_stored(settings, 100, process)
        own_postgres.stop()
        await publish_pages(settings, range(100, 300))
        await process.not_ready("the database cannot be written")
        await asyncio.to_thread(own_postgres.start)
        await until_stored(settings, 300, process)
        await process.ready()
    assert await written(settings, DEAD_LETTERS) == 0


@pytest.mark.long
async def test_a_scheduler_waits_for_the_database_of_its_shards(
    local_broker, own_postgres, tmp_path
):
    settings = await prepared(local_broker, own_postgres.uri)
    own_postgres.stop()
    with worker("scheduler", settings, tmp_path) as process:
        await process.not_ready("shards cannot be loaded")
        await asyncio.to_thread(own_postgres.start)
        # What is missing now is a coordinator, whom nobody has started.
        await process.not_ready("coordinator")
        assert process.poll() is None


async def test_a_worker_that_waits_for_the_database_can_be_stopped(
    local_broker, own_postgres, tmp_path
):
    settings = await prepared(local_broker, own_postgres.uri)
    own_postgres.stop()
    with worker("estimator", settings, tmp_path) as process:
        await said(process, "beginning again from the database")
        # It has no partitions yet, and says nothing of what waits in them: this is what fires.
        await process.exposes(b"freshet_database_away 1.0")
        process.stop()
    assert "Traceback" not in process.log.partition("stop")[0]


@OWN_ONCE
async def test_a_broker_that_is_away_is_waited_for(own_broker, database_url, tmp_path):
    # The watchdog's patience is shorter than the broker's absence: waiting is no stall.
    settings = await prepared(own_broker, database_url, stall_seconds=5.0)
    with (
        worker("estimator", settings, tmp_path) as estimator,
        worker("ingester", settings, tmp_path) as ingester,
    ):
        await asyncio.gather(estimator.ready(), ingester.ready())
        await publish_pages(settings, range(100))
        await publish_signals(settings, range(100))
        own_broker.kill()
        await asyncio.gather(
            estimator.not_ready("no broker answers"), ingester.not_ready("no broker answers")
        )
        assert b"freshet_not_ready 1.0" in (await ingester.get("/metrics"))[1]
        await asyncio.sleep(7.0)
        await asyncio.to_thread(own_broker.start)
        await asyncio.gather(estimator.ready(), ingester.ready())
        assert b"freshet_not_ready 0.0" in (await ingester.get("/metrics"))[1]
        await publish_pages(settings, range(100, 200))
        await publish_signals(settings, range(100, 200))
        await until_stored(settings, 200, estimator)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while await written(settings, PAGE_SIGNALS) < 200:
            assert time.monotonic() < deadline, ingester.log
            await asyncio.sleep(0.1)
        assert (estimator.poll(), ingester.poll()) == (None, None)
    assert await written(settings, DEAD_LETTERS) == 0


@OWN_ONCE
async def test_who_starts_while_a_broker_is_away_waits_for_it_and_says_so(
    own_broker, database_url, tmp_path
):
    settings = await prepared(own_broker, database_url)
    own_broker.kill()
    with (
        worker("ingester", settings, tmp_path) as ingester,
        worker("coordinator", settings, tmp_path) as coordinator,
    ):
        both = ingester, coordinator
        await asyncio.gather(*(process.not_ready("no broker answers") for process in both))
        await asyncio.gather(*(process.exposes(b"freshet_broker_away 1.0") for process in both))
        assert coordinator.stop() == 0
        await asyncio.to_thread(own_broker.start)
        await ingester.ready()
        await ingester.exposes(b"freshet_broker_away 0.0")
    assert "Traceback" not in ingester.log + coordinator.log


async def test_a_worker_that_fails_as_it_starts_says_with_what_at_last(
    local_broker, database_url, tmp_path
):
    settings = await prepared(local_broker, database_url)
    other = settings.model_copy(update={"partitions": 3})
    with worker("ingester", other, tmp_path) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None:
            assert time.monotonic() < deadline, process.log
            await asyncio.sleep(0.1)
        assert process.poll() == 1
    assert "TopicMismatch" in process.log.splitlines()[-1]


async def publish_signals(settings, numbers):
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for number in numbers:
            signal = Signal(f"https://host-{number % 9}.example/{number}", "cms", time.time())
            await publisher.send(SIGNALS, None, encode(signal))
        await publisher.flush()
    finally:
        await publisher.stop()


@pytest.mark.long
async def test_a_flood_before_a_slow_database_stays_on_the_broker(
    local_broker, database_url, tmp_path
):
    buffers = 8 * MEGABYTE
    flood, padding = 4_000, 40_000
    settings = await prepared(local_broker, database_url, fetch_buffer_bytes=buffers)
    with worker("estimator", settings, tmp_path) as process:
        await process.ready()
        await publish_pages(settings, range(10))
        await until_stored(settings, 10, process)
        memory = psutil.Process(process.pid).memory_info
        before = memory().rss
        with psycopg.connect(database_url) as blocker:
            blocker.execute("LOCK TABLE pages IN ACCESS EXCLUSIVE MODE")
            await publish_pages(settings, range(10, flood), padding)
            most = before
            for _ in range(30):
                most = max(most, memory().rss)
                await asyncio.sleep(0.1)
        await until_stored(settings, flood, process)
        most = max(most, memory().rss)
        # A batch and what is read ahead of the next, each as bytes and being decoded.
        assert most - before < 8 * buffers < flood * padding / 2
    assert await written(settings, DEAD_LETTERS) == 0


async def said(process: WorkerProcess, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while text not in process.log:
        assert process.poll() is None, process.log
        assert time.monotonic() < deadline, process.log
        await asyncio.sleep(0.05)


async def blocked_in_commit(database_url: str) -> None:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'freshet-estimator' "
        "AND datname = current_database() AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with psycopg.connect(database_url) as connection:
            if connection.execute(query).fetchone()[0]:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("the estimator does not commit")


async def test_a_stop_finishes_the_batch_at_hand(local_broker, database_url, tmp_path):
    settings = await prepared(local_broker, database_url)
    with worker("estimator", settings, tmp_path) as process:
        await process.ready()
        with psycopg.connect(database_url) as blocker:
            blocker.execute("LOCK TABLE pages IN ACCESS EXCLUSIVE MODE")
            await publish_pages(settings, range(100))
            await blocked_in_commit(database_url)
            process.terminate()
            await asyncio.sleep(1.0)
            assert process.poll() is None
        assert await asyncio.to_thread(process.stop) == 0
    assert "worker stopped" in process.log
    # All or nothing of it; and not each of the pages may have come before it was begun.
    assert stored(settings) > 0


async def test_a_stop_does_not_wait_for_a_database_that_hangs(local_broker, database_url, tmp_path):
    settings = await prepared(local_broker, database_url)
    with psycopg.connect(database_url) as blocker:
        with worker("estimator", settings, tmp_path) as process:
            await process.ready()
            blocker.execute("LOCK TABLE pages IN ACCESS EXCLUSIVE MODE")
            await publish_pages(settings, range(100))
            await blocked_in_commit(database_url)
            await asyncio.to_thread(process.stop)
        assert "worker stopped" in process.log
    assert stored(settings) == 0
    with worker("estimator", settings, tmp_path) as process:
        await until_stored(settings, 100, process)


async def test_a_worker_that_makes_no_progress_ends_itself_and_says_where(
    local_broker, database_url, tmp_path
):
    settings = await prepared(local_broker, database_url, stall_seconds=2.0)
    with psycopg.connect(database_url) as blocker:
        with worker("estimator", settings, tmp_path) as process:
            await process.ready()
            blocker.execute("LOCK TABLE pages IN ACCESS EXCLUSIVE MODE")
            await publish_pages(settings, range(100))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while process.poll() is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        assert process.poll() == 70
    assert "no progress" in process.log
    assert "persistence.py" in process.log
