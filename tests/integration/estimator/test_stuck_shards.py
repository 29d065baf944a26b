"""A shard that somebody holds locked does not stop the others, and nobody holds one for ever."""

import asyncio
import subprocess
import sys
import time

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, assert_schedulers_know, crawl, upsert

from services.estimator import persistence
from services.estimator.handler import EstimatorHandler
from shared.contracts.identity import identify, shard_of
from shared.runtime.clock import ManualClock
from shared.store.snapshot import load_for_learning

STUCK = shard_of(identify(URLS[0]).host, SHARDS)
OTHERS = set(range(SHARDS)) - {STUCK}

LOCKS = {
    "the owner's row": "SELECT 1 FROM shard_owners WHERE shard = %s FOR UPDATE",
    "a position": "SELECT 1 FROM stream_positions WHERE partition = %s "
    "AND topic = 'crawl-outcomes' FOR UPDATE",
    "a page": "SELECT 1 FROM pages WHERE shard = %s FOR UPDATE",
}

FROZEN = """
import os, signal, sys
from services.estimator.persistence import Store
from shared.runtime.settings import Settings
from shared.store import connection, owners
connection.WORKING = connection.Limits(silent=int(sys.argv[3]))
connection.connect.__kwdefaults__["limits"] = connection.WORKING
shard = int(sys.argv[2])
store = Store(Settings(database_url=sys.argv[1], partitions=4, instance="frozen"))
store.open()
epoch = store.own(shard)
with store._connection.transaction():
    owners.require_ownership(store._connection, {shard: epoch}, store._holder)
    print("frozen", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def crawls(settings):
    """Shard → crawls of all its pages."""
    url = settings.database_url.get_secret_value()
    return {n: int(load_for_learning(url, n).learning.crawls.sum()) for n in range(SHARDS)}


def expected(shards, each):
    here = [shard_of(identify(url).host, SHARDS) for url in URLS]
    return {n: each * here.count(n) if n in shards else 0 for n in range(SHARDS)}


@pytest.mark.parametrize("what", LOCKS)
async def test_the_others_go_on_and_it_follows_once_it_is_free(settings, start, kafka, what):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY / 2, "failed") for url in URLS)))
    first = kafka.batch(*(crawl(url, NOW + DAY) for url in URLS))
    second = kafka.batch(*(crawl(url, NOW + 2 * DAY) for url in URLS))
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        other.execute(LOCKS[what], (STUCK,))
        assert await handler.handle(first) == {STUCK}
        assert crawls(settings) == expected(OTHERS, 1)
        assert await handler.handle(second) == {STUCK}
        assert crawls(settings) == expected(OTHERS, 2)
        assert f"[{STUCK}]" in handler.trouble
    for batch in (first, second):
        again = {topic: {STUCK: parts[STUCK]} for topic, parts in batch.items()}
        assert await handler.handle(again) == set()
    assert crawls(settings) == expected(range(SHARDS), 2)
    assert handler.trouble is None
    assert_schedulers_know(settings, kafka)


async def test_a_shard_that_is_locked_is_not_behind_what_it_has_not_applied(settings, start, kafka):
    """Though the reader has passed it, and what came last is no record."""
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    handler._store._connection.execute("SET lock_timeout = '300ms'")
    handler._store._connection.commit()
    batch = kafka.batch(*(crawl(url, NOW + DAY) for url in URLS))
    [(topic, parts)] = batch.items()
    end = parts[STUCK][-1].offset + 2
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        other.execute(LOCKS["a page"], (STUCK,))
        assert await handler.handle(batch) == {STUCK}
        await handler.reached({(topic, STUCK): end})
    assert await handler.handle({topic: {STUCK: parts[STUCK]}}) == set()
    assert crawls(settings) == expected(range(SHARDS), 1)


async def test_one_that_cannot_be_loaded_does_not_keep_the_others_waiting(settings, start, kafka):
    before = await start(kafka)
    await before.handle(kafka.batch(*map(upsert, URLS)))
    batch = kafka.batch(*(crawl(url, NOW + DAY) for url in URLS))
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        other.execute(LOCKS["the owner's row"], (STUCK,))
        handler = EstimatorHandler(settings, ManualClock(NOW + 30 * DAY), kafka, asyncio.Event())
        await handler.open()
        positions = await handler.assigned(set(range(SHARDS)))
        assert {shard for _, shard in positions} == set(range(SHARDS))
        assert await handler.handle(batch) == {STUCK}
        assert crawls(settings) == expected(OTHERS, 1)
    assert await handler.handle(batch) == set()
    assert crawls(settings) == expected(range(SHARDS), 1)
    assert handler.trouble is None
    await handler.close()


async def test_a_refit_keeps_nobody_waiting_for_a_quiet_shard_that_is_locked(
    settings, start, kafka
):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    handler._store._connection.execute("SET lock_timeout = '300ms'")
    handler._store._connection.commit()
    handler._refits.are_due = lambda *_: True
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        other.execute(LOCKS["the owner's row"], (STUCK,))
        for day in (1, 2, 3):
            batch = kafka.batch(*(crawl(url, NOW + day * DAY) for url in URLS))
            theirs = {topic: {n: parts[n] for n in OTHERS} for topic, parts in batch.items()}
            assert await handler.handle(theirs) == set()
            assert crawls(settings) == expected(OTHERS, day)
    batch = kafka.batch(*(crawl(url, NOW + 4 * DAY) for url in URLS))
    assert await handler.handle(batch) == set()
    assert handler.trouble is None
    assert not handler._stale


async def test_an_owner_that_is_frozen_in_its_transaction_is_given_up(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    url = settings.database_url.get_secret_value()
    frozen = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FROZEN, url, str(STUCK), "3"), stdout=subprocess.PIPE
    )
    try:
        assert await frozen.stdout.readline() == b"frozen\n"
        batch = kafka.batch(*(crawl(url, NOW + DAY) for url in URLS))
        left = await handler.handle(batch)
        while left:
            again = {t: {s: parts[s] for s in left} for t, parts in batch.items()}
            left = await handler.handle(again)
        assert crawls(settings) == expected(range(SHARDS), 1)
    finally:
        frozen.kill()
        await frozen.wait()


async def test_one_that_was_frozen_goes_on_when_it_wakes(settings, start, kafka, monkeypatch):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    connection = handler._store._connection
    connection.execute("SET idle_in_transaction_session_timeout = '200ms'")
    connection.commit()
    write, naps = persistence.write_rows, iter([1.0])

    def sleep_and_write(*given):
        time.sleep(next(naps, 0.0))
        write(*given)

    monkeypatch.setattr(persistence, "write_rows", sleep_and_write)
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    assert crawls(settings) == expected(range(SHARDS), 1)


async def test_who_reads_what_crawls_found_for_long_ends_no_estimator(settings, start, kafka):
    handler = await start(kafka)
    await handler.handle(kafka.batch(*map(upsert, URLS)))
    await handler.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS)))
    handler._store._connection.execute("SET lock_timeout = '200ms'")
    handler._store._connection.commit()
    batch = kafka.batch(*(crawl(url, NOW + 2 * DAY) for url in URLS))
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        # As a backup does; and there is no partition for what is found from now on.
        other.execute("SELECT count(*) FROM observations")
        assert await handler.handle(batch) == set(range(SHARDS))
        assert crawls(settings) == expected(range(SHARDS), 1)
    assert await handler.handle(batch) == set()
    assert crawls(settings) == expected(range(SHARDS), 2)
    assert handler.trouble is None
