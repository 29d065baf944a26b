"""A server that takes no writes for a while is away: its disk is full, or it was demoted."""

import asyncio
import contextlib

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, crawl, upsert

from services.estimator.lanes import Lanes
from shared.contracts.databases import Databases
from shared.runtime.clock import ManualClock
from shared.store import stream_topics
from shared.store.stream_topics import StoredTopics


def alter(url, statement):
    """Change what sessions begin with that are made from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
        name = psycopg.sql.Identifier(connection.info.dbname)
        connection.execute(psycopg.sql.SQL(f"ALTER DATABASE {{}} {statement}").format(name))


@contextlib.contextmanager
def read_only(url):
    """A server that takes no writes, and then leaves its sessions so: another one does."""
    alter(url, "SET default_transaction_read_only = on")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'freshet-%' AND datname = current_database()"
        )
    try:
        yield
    finally:
        alter(url, "RESET default_transaction_read_only")


@pytest.fixture
def url(settings):
    return settings.database_url.get_secret_value()


def counted(url, what):
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT {what} FROM pages").fetchone()[0]


async def until(condition, work):
    async with asyncio.timeout(30):
        while not condition():
            if work.done():
                work.result()
            await asyncio.sleep(0.02)


async def test_an_estimator_waits_for_a_server_that_takes_writes(start, kafka, url):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    with read_only(url):
        crawled = kafka.batch(*(crawl(one, NOW + DAY) for one in URLS))
        handling = asyncio.ensure_future(handler.handle(crawled))
        await until(lambda: "read-only" in (handler.trouble or ""), handling)
    await asyncio.wait_for(handling, 30)
    assert handler.trouble is None
    assert counted(url, "sum(crawls)") == len(URLS)


async def test_shards_of_a_server_that_takes_no_writes_wait_alone(settings, kafka, url):
    lanes = Lanes(settings, ManualClock(NOW + 30 * DAY), kafka, asyncio.Event())
    await lanes.open()
    await lanes.assigned(set(range(SHARDS)))
    pages = kafka.batch(*map(upsert, URLS))
    with read_only(url):
        async with asyncio.timeout(30):
            while "read-only" not in (lanes.trouble or ""):
                assert await lanes.handle(pages), "nothing is done"
                await asyncio.sleep(0.02)
    async with asyncio.timeout(30):
        while await lanes.handle(pages):
            await asyncio.sleep(0.1)
    assert lanes.trouble is None
    await lanes.close()
    assert counted(url, "count(*)") == len(URLS)


async def test_which_topics_are_known_is_asked_until_it_can_be_noted(url, monkeypatch):
    monkeypatch.setattr(stream_topics, "AGAIN_SECONDS", 0.05)
    known = StoredTopics(Databases.alone(url), "test", writes=True)
    with read_only(url):
        asking = asyncio.ensure_future(known.note({"page-updates": "an id"}))
        await asyncio.sleep(0.3)
        if asking.done():
            pytest.fail(f"it is given up: {asking}")
    assert await asyncio.wait_for(asking, 30) == {"page-updates": "an id"}
