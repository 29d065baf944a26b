"""Shards that went to another scheduler before they were loaded are no trouble of this one."""

import asyncio
import contextlib
from unittest import mock

import psycopg
import pytest

import services.scheduler.flow.handler as scheduler_handler
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.flow.splitting import Begun
from shared.contracts.layout import ALONE
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings


async def trouble_before_and_after():
    thread = ShardThread()
    handler = SchedulerHandler(Settings(), ManualClock(), mock.Mock(), thread)
    loading = asyncio.ensure_future(handler.assigned({1}))
    while handler.trouble is None:
        if loading.done():
            loading.result()
        await asyncio.sleep(0.01)
    before = handler.trouble
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading
    await handler.revoked({1})
    thread.close()
    return before, handler.trouble


@pytest.mark.parametrize(
    ("writing", "reading"),
    [
        (None, psycopg.OperationalError("the server is down")),
        (psycopg.errors.ReadOnlySqlTransaction("the server is down"), None),
    ],
    ids=["down", "read-only"],
)
def test_a_load_that_was_given_up_leaves_no_trouble(writing, reading):
    begun = mock.Mock(return_value=Begun(ALONE, ""), side_effect=writing)
    with (
        mock.patch.object(scheduler_handler, "begin_anew", begun),
        mock.patch.object(scheduler_handler, "load_shard", side_effect=reading),
        mock.patch.object(scheduler_handler, "read_recent_requests", mock.AsyncMock()),
    ):
        before, after = asyncio.run(trouble_before_and_after())

    assert before == "shards cannot be loaded: the server is down"
    assert after is None
