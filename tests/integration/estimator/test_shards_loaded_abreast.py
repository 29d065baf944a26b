"""Several shards of a start are loaded at once, and each once, whatever happens meanwhile."""

import asyncio
from collections import Counter
from threading import Barrier

import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, URLS, assert_schedulers_know, crawl, upsert

from services.estimator import taking
from services.estimator.handler import EstimatorHandler
from shared.runtime.clock import ManualClock

ALL = set(range(SHARDS))


@pytest.fixture
async def successor(settings, start, kafka):
    """An estimator of the pages that another one has had, with no shards yet."""
    before = await start(kafka)
    await before.handle(kafka.batch(*map(upsert, URLS)))
    handler = EstimatorHandler(settings, ManualClock(NOW + 30 * DAY), kafka, asyncio.Event())
    await handler.open()
    yield handler
    await handler.close()


async def test_two_are_read_at_the_same_time(settings, successor, kafka, monkeypatch):
    both, load = Barrier(taking.LOADED_AT_ONCE, timeout=60), taking.load_for_learning

    def met(*args):
        both.wait()
        return load(*args)

    monkeypatch.setattr(taking, "load_for_learning", met)
    await successor.assigned(ALL)
    assert await successor.handle(kafka.batch(*(crawl(url, NOW + DAY) for url in URLS))) == set()
    assert_schedulers_know(settings, kafka)


async def test_what_is_there_is_not_loaded_again_because_the_server_went_away(
    successor, monkeypatch
):
    loads, load = Counter(), taking.load_for_learning

    def sometimes(url, number, *args):
        loads[number] += 1
        if number == SHARDS - 1 and loads[number] < 3:
            raise psycopg.OperationalError("the server closed the connection unexpectedly")
        return load(url, number, *args)

    monkeypatch.setattr(taking, "load_for_learning", sometimes)
    positions = await successor.assigned(ALL)
    assert {shard for _, shard in positions} == ALL
    assert loads == dict.fromkeys(ALL, 1) | {SHARDS - 1: 3}
    assert successor.trouble is None
