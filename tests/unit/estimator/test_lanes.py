"""Lanes of several databases: none waits for another, and nothing is done by two at once."""

import asyncio
import time

import psycopg
import pytest

from services.estimator import lanes as module
from services.estimator.lanes import Lanes
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.clock import ManualClock
from shared.runtime.isolation import TooManyBadMessages
from shared.runtime.settings import Settings
from shared.store.deployment import StoreMismatch

TOPIC = PAGE_UPDATES.name
A, B = "postgresql://a/pages", "postgresql://b/pages"
HERE, THERE = 0, 2
"""Shards of A and of B."""


class Handler:
    """Does what it is told to, in the place of one that has a database."""

    made = None
    """All of them, in order."""
    away = None
    """Databases that are away."""
    others = None
    """Databases that are not those of the settings."""
    hanging = None
    """Database → event: what is asked of it waits for that."""

    def __init__(self, settings, _clock, _announcer, ending, _tracing, report):
        self.url = settings.database_url.get_secret_value()
        self.ending, self.report = ending, report
        self.loaded, self.later, self.done, self.asked = set(), set(), [], []
        self.trouble, self.progressed_at = None, time.monotonic()
        self.pages = self.stuck = 0
        self.running = 0
        self.closed = False
        self.made.append(self)

    async def _ask(self):
        self.running += 1
        assert self.running == 1, "two at once"
        try:
            if self.url in self.hanging:
                await self.hanging[self.url].wait()
            if self.url in self.away:
                raise psycopg.OperationalError("no server\nfurther lines")
            if self.url in self.others:
                raise StoreMismatch("no tables")
        finally:
            self.running -= 1

    async def open(self):
        await self._ask()

    async def close(self):
        self.closed = True

    async def assigned(self, shards):
        self.asked += shards
        await self._ask()
        self.loaded |= shards
        self.pages = len(self.loaded)
        return {(TOPIC, shard): 7 for shard in shards}

    async def revoked(self, shards):
        self.loaded -= shards

    async def handle(self, batch):
        await self._ask()
        self.done.append(sorted(batch[TOPIC]))
        return set()

    async def reached(self, positions):
        await self._ask()
        self.done.append(dict(positions))

    def load_later(self, shards, committed):
        self.later |= shards
        self.known = committed

    def committed(self):
        return {(TOPIC, shard): 7 for shard in self.loaded}


@pytest.fixture
async def lanes(monkeypatch):
    """All shards of two databases are this process's."""
    monkeypatch.setattr(module, "LaneHandler", Handler)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    monkeypatch.setattr(Handler, "made", [])
    monkeypatch.setattr(Handler, "away", set())
    monkeypatch.setattr(Handler, "others", set())
    monkeypatch.setattr(Handler, "hanging", {})
    settings = Settings(databases=f"0-1={A},2-3={B}", partitions=4)
    lanes = Lanes(settings, ManualClock(), None, asyncio.Event())
    await lanes.open()
    await lanes.assigned({0, 1, 2, 3})
    yield lanes
    for event in Handler.hanging.values():
        event.set()
    await lanes.close()


def batch(*shards):
    return {TOPIC: {shard: ["record"] for shard in shards}}


def handler(url):
    """The one that was made last for a database."""
    return [made for made in Handler.made if made.url == url][-1]


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_batch_goes_to_the_databases_of_its_shards(lanes):
    assert await lanes.handle(batch(0, 1, 3)) == set()
    assert (handler(A).done, handler(B).done) == ([[0, 1]], [[3]])
    await lanes.reached({(TOPIC, 0): 5, (TOPIC, 2): 6})
    assert (handler(A).done[1], handler(B).done[1]) == ({(TOPIC, 0): 5}, {(TOPIC, 2): 6})


async def test_what_one_database_could_not_take_is_left_and_the_rest_is_done(lanes):
    Handler.away.add(B)
    assert await lanes.handle(batch(HERE, THERE)) == {THERE}
    assert handler(A).done == [[HERE]]
    assert lanes.trouble == "the database of the shards 2-3/4 is away: no server"
    # It is tried, and not waited for.
    Handler.away.clear()
    assert await lanes.handle(batch(HERE, THERE)) <= {THERE}
    await until(lambda: lanes.trouble is None)
    assert await lanes.handle(batch(HERE, THERE)) == set()


async def test_a_database_that_hangs_is_waited_for_once(lanes):
    Handler.hanging[B] = asyncio.Event()
    for _ in range(3):
        assert await lanes.handle(batch(HERE, THERE)) == {THERE}
        await lanes.reached({(TOPIC, THERE): 5})
    assert len(handler(A).done) == 3
    assert not lanes.are_all_busy
    Handler.hanging.pop(B).set()
    await until(lambda: handler(B).done == [[THERE]])
    assert await lanes.handle(batch(HERE, THERE)) == set()


async def test_a_database_that_was_away_is_not_waited_for(lanes, monkeypatch):
    Handler.away.add(B)
    await lanes.handle(batch(THERE))
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 3600.0)
    Handler.hanging[B] = event = asyncio.Event()
    async with asyncio.timeout(60):
        assert await lanes.handle(batch(HERE, THERE)) == {THERE}
    event.set()


async def test_all_databases_that_hang_are_no_progress(lanes):
    Handler.hanging |= {A: asyncio.Event(), B: asyncio.Event()}
    await lanes.handle(batch(HERE, THERE))
    assert lanes.are_all_busy


async def test_shards_are_loaded_without_a_database_that_is_away_and_once_it_is_back(lanes):
    await lanes.revoked({0, 1, 2, 3})
    Handler.away.add(B)
    assert await lanes.assigned({HERE, THERE}) == {(TOPIC, HERE): 7}
    assert lanes.absent() == {THERE}
    Handler.away.clear()
    assert await lanes.assigned({THERE}) == {(TOPIC, THERE): 7}
    assert lanes.absent() == set()


async def test_a_database_without_shards_here_is_no_trouble(lanes):
    Handler.away.add(B)
    await lanes.handle(batch(THERE))
    assert lanes.trouble is not None
    await lanes.revoked({2, 3})
    assert lanes.trouble is None


async def test_shards_of_a_database_that_hangs_can_go_elsewhere(lanes):
    Handler.hanging[B] = event = asyncio.Event()
    before = handler(B)
    await lanes.handle(batch(THERE))
    await lanes.revoked({3})
    after = handler(B)
    assert after is not before
    assert (after.later, after.known[TOPIC, 2]) == ({2}, 7)
    assert before.ending.is_set()
    assert not after.ending.is_set()
    # What was under way ends with nobody, and its connection is closed.
    del Handler.hanging[B]
    assert await lanes.handle(batch(2)) == set()
    assert not before.closed
    event.set()
    await until(lambda: before.closed)
    assert await lanes.handle(batch(2)) == set()


async def test_a_load_that_is_not_wanted_any_more_is_not_gone_on_with(lanes):
    await lanes.revoked({2, 3})
    handler(B).asked.clear()
    Handler.hanging[B] = asyncio.Event()
    loading = asyncio.ensure_future(lanes.assigned({2, 3}))
    await asyncio.sleep(0.01)
    loading.cancel()
    letting_go = asyncio.ensure_future(lanes.revoked({2, 3}))
    await asyncio.sleep(0.01)
    Handler.hanging.pop(B).set()
    await letting_go
    assert handler(B) is Handler.made[1]
    assert (handler(B).asked, handler(B).loaded) == ([2], set())


async def test_what_no_waiting_helps_against_is_raised_though_it_came_late(lanes, monkeypatch):
    Handler.hanging[B] = asyncio.Event()

    async def refuse(self, _batch):
        await self._ask()
        raise TooManyBadMessages("page-updates", "of ten, nine")

    with monkeypatch.context() as patch:
        patch.setattr(Handler, "handle", refuse)
        assert await lanes.handle(batch(THERE)) == {THERE}
    Handler.hanging.pop(B).set()
    await until(lambda: not lanes.each[1].is_busy)
    with pytest.raises(TooManyBadMessages):
        await lanes.handle(batch(THERE))
    lanes.each[1]._work = None


async def test_a_database_that_is_being_restored_stops_its_own_shards_only(lanes):
    Handler.others.add(B)
    await lanes.open()
    for _ in range(2):
        assert await lanes.handle(batch(HERE, THERE)) == {THERE}
    assert lanes.trouble == "the database of the shards 2-3/4 is away: no tables"
    Handler.others.add(A)
    # Two URLs that were swapped are a fault of the settings, and the worker does not begin.
    with pytest.raises(StoreMismatch):
        await lanes.open()
    Handler.others.clear()
    await until_done(lanes, batch(HERE, THERE))
    assert lanes.trouble is None


async def until_done(lanes, some):
    async with asyncio.timeout(10):
        while await lanes.handle(some):
            await asyncio.sleep(0.001)
