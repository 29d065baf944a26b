"""After a standstill a scheduler reads what came meanwhile, and asks for pages only then."""

import asyncio
from unittest import mock

import pytest
from reference_shard import rules

from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.picking.calendar import make_shard
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

OUTCOMES, SIGNALS = CRAWL_OUTCOMES.name, PAGE_SIGNALS.name


@pytest.fixture
def handler():
    thread = ShardThread()
    made = SchedulerHandler(Settings(), ManualClock(), mock.Mock(), thread)
    for number in (0, 1):
        made.shards[number] = make_shard(number, rules())
        made.shards[number].is_caught_up = True
    yield made
    thread.close()


def ready(handler):
    return [number for number, shard in handler.shards.items() if shard.is_caught_up]


def test_a_shard_waits_for_all_that_it_has_not_read(handler):
    asyncio.run(handler.unread({(OUTCOMES, 1): 14, (SIGNALS, 1): 3}))
    assert ready(handler) == [0]
    asyncio.run(handler.reached({(SIGNALS, 1): 3, (OUTCOMES, 1): 13}))
    assert ready(handler) == [0]
    asyncio.run(handler.reached({(OUTCOMES, 1): 14}))
    assert ready(handler) == [0, 1]


def test_a_shard_that_has_read_all_waits_for_nothing(handler):
    asyncio.run(handler.unread({}))
    assert ready(handler) == [0, 1]


def test_a_shard_that_goes_takes_along_what_it_waited_for(handler):
    asyncio.run(handler.unread({(OUTCOMES, 1): 14}))
    asyncio.run(handler.revoked({1}))
    assert handler.catching_up == 0
    assert ready(handler) == [0]
