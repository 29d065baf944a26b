"""Refused writes are told of when they last, and forgotten however they end."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import LeaderNotAvailableError

from shared.runtime import write_watch
from shared.runtime.write_watch import TOLD_SECONDS, WriteWatch

PLACE = TopicPartition("page-signals", 3)


@pytest.fixture
def clock(monkeypatch):
    class Time:
        now = 1000.0

        def monotonic(self):
            return self.now

    made = Time()
    monkeypatch.setattr(write_watch, "time", made)
    return made


async def test_what_is_refused_for_a_moment_is_a_sign_of_life_and_no_trouble(clock):
    watch, end = WriteWatch(), asyncio.get_running_loop().create_future()
    watch.note(PLACE, end)
    clock.now += 0.9 * TOLD_SECONDS
    watch.note(PLACE, end)
    assert watch.trouble is None
    assert watch.refused_at == clock.now


@pytest.mark.parametrize("error", [None, LeaderNotAvailableError()])
async def test_what_is_refused_for_longer_is_trouble_until_it_is_stored_or_given_up(clock, error):
    watch, end = WriteWatch(), asyncio.get_running_loop().create_future()
    watch.note(PLACE, end)
    clock.now += TOLD_SECONDS
    watch.note(PLACE, end)
    assert "page-signals" in watch.trouble
    clock.now += 1.0
    if error is None:
        end.set_result(None)
    else:
        end.set_exception(error)
        end.exception()
    await asyncio.sleep(0)
    assert watch.trouble is None
    assert watch.refused_at == clock.now, "whoever waited for it has its time to go on"
