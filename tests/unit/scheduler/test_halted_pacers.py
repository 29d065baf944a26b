"""A scheduler that may fill no slots, for as long as it likes, remembers little of the plans."""

import math

import pytest
from test_clock_steps import RATE, Group, Unsettled, World

from services.scheduler import metrics
from services.scheduler.flow import pacer
from services.scheduler.flow.pacer import PATIENCE_SECONDS, REMEMBERED_SECONDS

PLANS = 1_000
"""One a second (wall)."""


class Stopping:
    """Is set after so many turns."""

    def __init__(self, turns):
        self._left = turns

    def is_set(self):
        self._left -= 1
        return self._left < 0


async def stand_still(world, monkeypatch):
    """The group never settles, while the coordinator makes plans."""
    clock = world.clock
    begun, per_second = clock.time, RATE / clock.speed

    async def sleep(_seconds):
        clock.advance(clock.speed)
        at = clock.time + 0.5 * clock.speed
        world.plan(at, per_second * (at - begun))

    world.pacer._consumer = Unsettled()
    with monkeypatch.context() as patched:
        patched.setattr(pacer.asyncio, "sleep", sleep)
        await world.pacer.run(Stopping(PLANS))


def plans(world):
    return len(world.slots.held(-math.inf, math.inf))


@pytest.mark.parametrize("speed", [1.0, 1000.0])
async def test_one_that_never_may_forgets_the_plans_of_long_ago(monkeypatch, speed):
    world = World(speed)
    await stand_still(world, monkeypatch)
    assert plans(world) <= REMEMBERED_SECONDS + 3


@pytest.mark.parametrize("speed", [1.0, 1000.0])
async def test_one_that_may_again_goes_on_with_the_slots_of_now(monkeypatch, speed):
    world = World(speed)
    await stand_still(world, monkeypatch)
    world.pacer._consumer = Group()
    lost = metrics.FORFEITED_SLOTS._value.get()
    counts = await world.run(3)
    assert counts == pytest.approx([RATE * (1 + PATIENCE_SECONDS), RATE, RATE], abs=RATE / 10)
    lost = metrics.FORFEITED_SLOTS._value.get() - lost
    assert lost == pytest.approx(RATE * (REMEMBERED_SECONDS - PATIENCE_SECONDS), abs=2 * RATE)


async def test_slots_that_came_before_the_first_plan_are_not_counted_as_lost():
    """The budget may have gone on for years before a scheduler hears of it for the first time."""
    world = World()
    world.slots._plans.clear()
    world.clock.advance(10.0)
    world.plan(world.clock.time - 2.0, 1e9)
    lost = metrics.FORFEITED_SLOTS._value.get()
    await world.run(1)
    lost = metrics.FORFEITED_SLOTS._value.get() - lost
    assert lost == pytest.approx(RATE, abs=RATE / 10)
