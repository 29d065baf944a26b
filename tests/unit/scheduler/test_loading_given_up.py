"""Shards that went to another scheduler before they were loaded are no trouble of this one."""

import asyncio
import contextlib
from unittest import mock

import psycopg

import services.scheduler.flow.handler as scheduler_handler
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.splitting import Begun
from shared.contracts.layout import ALONE
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings


def no_database(*_):
    raise psycopg.OperationalError("the server is down")


async def trouble_before_and_after():
    thread = ShardThread()
    handler = SchedulerHandler(Settings(), ManualClock(), mock.Mock(), thread)
    loading = asyncio.ensure_future(handler.assigned({1}))
    while handler.trouble is None:
        await asyncio.sleep(0.01)
    before = handler.trouble
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading
    await handler.revoked({1})
    thread.close()
    return before, handler.trouble


def test_a_load_that_was_given_up_leaves_no_trouble():
    with (
        mock.patch.object(scheduler_handler, "begin_anew", return_value=Begun(ALONE, "")),
        mock.patch.object(scheduler_handler, "load_shard", no_database),
        mock.patch.object(scheduler_handler, "read_recent", mock.AsyncMock()),
    ):
        before, after = asyncio.run(trouble_before_and_after())

    assert before == "shards cannot be loaded: the server is down"
    assert after is None
