"""A shard that is loaded while an estimator has in hand what the topic no longer has."""

import asyncio
from unittest import mock

import pytest

import services.scheduler.flow.handler as scheduler_handler
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.splitting import Begun
from services.scheduler.worker import Scheduler
from shared.contracts.layout import ALONE
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

KEY = (CRAWL_OUTCOMES.name, 1)


class Database:
    """Stands at 21; after some looks at 30, if it ever gets there."""

    def __init__(self, looks):
        self.position, self.looks, self.loads = 21, looks, 0

    async def load(self, _partitions, _layout):
        self.loads += 1
        return {}, {}, {KEY: self.position}

    def look(self, *_):
        self.looks -= 1
        if self.looks == 0:
            self.position = 30
        return {KEY: self.position}


@pytest.fixture
def load(monkeypatch):
    """Loads a shard; its topic begins at an offset, and ends at 33."""
    monkeypatch.setattr(scheduler_handler, "APPLIED_LOOK_SECONDS", 0.001)

    def load(database, begin):
        async def run():
            thread = ShardThread()
            handler = SchedulerHandler(Settings(), ManualClock(), mock.Mock(), thread)
            bounds = mock.AsyncMock(return_value=({KEY: begin}, {KEY: 33}))
            with (
                mock.patch.object(scheduler_handler, "begin_anew", return_value=Begun(ALONE, "")),
                mock.patch.object(handler, "_read_all", database.load),
                mock.patch.object(handler, "_bounds", bounds),
                mock.patch.object(scheduler_handler, "read_applied", database.look),
            ):
                found = await handler.assigned({1})
            thread.close()
            return found

        return asyncio.run(run())

    return load


def test_it_is_loaded_again_once_the_database_has_it(load):
    database = Database(looks=3)

    assert load(database, begin=30) == {KEY: 30}
    assert database.loads == 2


def test_what_nobody_has_is_not_waited_for_long(load, monkeypatch):
    monkeypatch.setattr(scheduler_handler, "OVERTAKEN_SECONDS", 0.01)
    database = Database(looks=10**9)

    assert load(database, begin=30) == {KEY: 21}
    assert database.loads == 1


def test_without_a_gap_nothing_is_waited_for(load):
    database = Database(looks=10**9)

    assert load(database, begin=21) == {KEY: 21}
    assert database.loads == 1
    assert database.looks == 10**9


async def test_who_is_told_to_stop_does_not_wait_until_the_broker_has_what_was_asked_for():
    scheduler = Scheduler(Settings())
    scheduler._consumer = mock.Mock()
    scheduler._pacer = mock.Mock(is_written_out=mock.AsyncMock(return_value=False))
    assert not await scheduler._is_written_out()
    scheduler.stopping.set()
    assert await scheduler._is_written_out()
