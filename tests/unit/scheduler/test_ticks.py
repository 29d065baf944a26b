"""How soon slots are filled again: soon, but not all the time where it takes long."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_clock_steps import World

from services.scheduler.flow import pacer, slot_filler
from services.scheduler.flow.pacer import RESTS, seconds_to_next
from services.scheduler.flow.shard_thread import ShardThread

SECONDS = st.floats(1e-3, 10.0)


@pytest.mark.parametrize(
    ("took", "between"),
    [(0.0, 0.05), (0.005, 0.05), (0.007, 0.07), (0.01, 0.09), (0.03, 0.07), (0.04, 0.08), (3, 0.1)],
)
def test_ticks_are_further_apart_where_they_take_long(took, between):
    assert seconds_to_next(0.05, took) == pytest.approx(between)


@given(SECONDS, SECONDS)
def test_ticks_are_as_far_apart_as_is_set_and_at_most_twice_as_far(tick, took):
    between = seconds_to_next(tick, took)
    assert tick <= between <= 2 * tick
    if between > tick:
        assert took > tick / RESTS


@given(SECONDS, SECONDS)
def test_a_slot_is_filled_within_two_ticks_or_half_of_the_time_is_others(tick, took):
    between = seconds_to_next(tick, took)
    if took <= tick:
        assert between + took <= 2 * tick * (1 + 1e-9) or between == pytest.approx(2 * took)


class Stopping:
    """Is set after some ticks."""

    def __init__(self, ticks):
        self._left = ticks

    def is_set(self):
        self._left -= 1
        return self._left < 0


class Watch:
    """A clock that stands still, or shows what it is told to."""

    def __init__(self, *shown):
        self._shown = list(shown)

    def monotonic(self):
        return 100.0

    def perf_counter(self):
        return self._shown.pop(0)


async def test_the_scheduler_rests_for_as_long_as_the_slots_before_took(monkeypatch):
    world, rests = World(), []
    # What the thread does before the slots takes long, too, and is on no watch of theirs.
    monkeypatch.setattr(slot_filler, "time", Watch(1.0, 1.0, 2.0, 2.008, 3.0, 4.0, 5.0, 5.001))
    monkeypatch.setattr(pacer, "time", Watch())

    async def sleep(seconds):
        rests.append(seconds)
        world.clock.advance(0.05)

    monkeypatch.setattr(pacer.asyncio, "sleep", sleep)
    await world.pacer.run(Stopping(4))
    assert rests == pytest.approx([0.05, 0.1, 0.18, 0.28])


async def test_slots_are_filled_before_what_waits_for_the_thread(monkeypatch):
    world, thread, done = World(), ShardThread(), []
    held, may_go_on = threading.Event(), threading.Event()
    fill = world.pacer._filler.fill

    def noted(*arguments):
        done.append("slots")
        return fill(*arguments)

    def wait():
        held.set()
        assert may_go_on.wait(10)

    monkeypatch.setattr(world.pacer, "_thread", thread)
    monkeypatch.setattr(world.pacer._filler, "fill", noted)
    work = [asyncio.create_task(thread.run(wait))]
    await asyncio.to_thread(held.wait, 10)
    work.append(asyncio.create_task(thread.run(done.append, "batch")))
    await asyncio.sleep(0)
    world.clock.advance(0.1)
    work.append(asyncio.create_task(world.pacer.tick()))
    await asyncio.sleep(0)
    may_go_on.set()
    await asyncio.gather(*work)
    thread.close()
    assert done == ["slots", "batch"]
