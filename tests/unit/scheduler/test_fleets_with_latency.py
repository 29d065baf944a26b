"""Fleets that take their time for each request, and such that cannot do more: which is which."""

import heapq
from collections import deque

import pytest
from reference_shard import NEVER
from test_slot_filling import NOW, make_shards

from services.scheduler.flow.in_flight import LEAST, FleetWindow
from services.scheduler.flow.slot_filler import SlotFiller
from shared.contracts.messages import Allotment, Multipliers
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings

TIMEOUT = 120.0
TICK_SECONDS = 0.5
RATE = 40.0
UNLIMITED = 1e9


class Fleet:
    """Begins so many requests a second, in their order, and answers each some seconds later; all
    of a while at once, where it answers in batches."""

    def __init__(self, seconds, rate=UNLIMITED, batch_seconds=0.0):
        self.seconds, self.rate, self.batch_seconds = seconds, rate, batch_seconds
        self.waiting = 0
        """Requests that it has not answered, and that are not late."""
        self.late = self.longest = 0
        """Answers that came too late; and requests that were before it at most."""
        self._queue, self._answers, self._is_free = deque(), [], 0.0

    def take(self, time, requests):
        self._queue.extend([time] * requests)
        self.waiting += requests
        self.longest = max(self.longest, len(self._queue))

    def answers(self, now):
        """How many come now, of requests that still wait."""
        while self._queue and max(self._is_free, self._queue[0]) <= now:
            asked_at = self._queue.popleft()
            self._is_free = max(self._is_free, asked_at) + 1.0 / self.rate
            at = self._is_free + self.seconds
            if self.batch_seconds:
                at = (at // self.batch_seconds + 1.0) * self.batch_seconds
            heapq.heappush(self._answers, (at, asked_at))
        came = []
        while self._answers and self._answers[0][0] <= now:
            came.append(heapq.heappop(self._answers))
        in_time = sum(at - asked_at <= TIMEOUT for at, asked_at in came)
        self.late += len(came) - in_time
        self.waiting -= len(came)
        return in_time


class Budget:
    """Its slots go to a fleet as far as the window lets them; it goes on from call to call."""

    def __init__(self, fleet):
        self.fleet, self.now, self.window = fleet, 0.0, FleetWindow(TIMEOUT, self._count)
        self._due = 0.0

    def _count(self, _now):
        return self.fleet.waiting

    def run(self, seconds, rate=RATE):
        """Which part of the slots was asked for."""
        slots = asked = 0
        for _ in range(round(seconds / TICK_SECONDS)):
            self.now += TICK_SECONDS
            answered = self.fleet.answers(self.now)
            current = rate(self.now) if callable(rate) else rate
            self._due += current * TICK_SECONDS
            wanted = int(self._due)
            self._due -= wanted
            given = min(self.window.room(self.now, answered, current), wanted)
            self.window.asked(given)
            self.fleet.take(self.now, given)
            slots, asked = slots + wanted, asked + given
        return asked / slots


@pytest.mark.parametrize("seconds", [5.0, 30.0, 45.0, 55.0, 58.0])
def test_a_fleet_that_answers_in_half_of_the_timeout_gets_the_budget_in_minutes(seconds):
    budget = Budget(Fleet(seconds))
    assert budget.run(600.0) > 0.85
    assert budget.run(600.0) > 0.995


def test_a_fleet_that_answers_in_batches_is_not_behind_between_them():
    budget = Budget(Fleet(1.0, batch_seconds=45.0))
    budget.run(300.0)
    assert budget.run(600.0) > 0.995


@pytest.mark.parametrize(
    ("seconds", "first"), [(5.0, 0.98), (20.0, 0.75), (30.0, 0.5), (45.0, 0.3)]
)
def test_a_budget_that_is_raised_is_the_fleets_in_minutes(seconds, first):
    budget = Budget(Fleet(seconds))
    assert budget.run(600.0, 2.0) > 0.9
    assert budget.run(60.0, 100.0) > first
    budget.run(240.0, 100.0)
    assert budget.run(300.0, 100.0) > 0.995


def test_a_budget_that_is_another_by_night_is_the_fleets_again_in_the_morning():
    budget = Budget(Fleet(30.0))
    for _ in range(2):
        assert budget.run(600.0, 100.0) > 0.9
        assert budget.run(900.0, 2.0) == 1.0


def test_a_ramp_is_followed_by_a_fleet_that_takes_half_a_minute():
    budget = Budget(Fleet(30.0))
    assert budget.run(120.0, lambda now: now / 10.0) > 0.7
    assert budget.run(480.0, lambda now: now / 10.0) > 0.995


@pytest.mark.parametrize("part", [2.0, 4.0, 6.0])
@pytest.mark.parametrize("seconds", [0.5, 5.0, 20.0])
def test_of_what_a_slow_fleet_is_asked_for_nothing_is_late(part, seconds):
    """From the start on, also where it turns out to be slow when the budget rises."""
    for before in (0.0, 0.9 * RATE / part):
        fleet = Fleet(seconds, RATE / part)
        budget = Budget(fleet)
        if before:
            budget.run(600.0, before)
        budget.run(600.0)
        assert fleet.late == 0
        assert fleet.longest <= fleet.rate * TIMEOUT
        # It always has something to do, and no more than it can do in time.
        assert 0 < len(fleet._queue) <= fleet.rate * TIMEOUT / 2 + LEAST
        assert budget.run(600.0) == pytest.approx(1.0 / part, rel=0.01)


@pytest.mark.parametrize("seconds", [0.5, 20.0])
def test_a_fleet_that_is_known_to_be_behind_is_asked_for_no_more_when_the_budget_rises(seconds):
    fleet = Fleet(seconds, RATE / 2)
    budget = Budget(fleet)
    budget.run(600.0)
    fleet.longest = 0
    budget.run(600.0, 10.0 * RATE)
    assert fleet.longest <= fleet.rate * TIMEOUT / 2 + LEAST
    assert fleet.late == 0


def test_a_fleet_that_never_answers_is_asked_for_a_quarter_of_half_a_timeout():
    fleet = Fleet(NEVER * -1.0)
    budget = Budget(fleet)
    part = budget.run(TIMEOUT / 2)
    assert part <= 0.26
    assert budget.run(TIMEOUT / 2) == 0.0


def test_in_a_ramp_the_rate_is_that_of_the_slots_and_not_of_its_beginning():
    shards = make_shards(count=1, pages=3000)
    said = Multipliers(
        1, NOW, NOW, 1e-9, 0.0, 0.0, [Allotment(0, 1.0)], ramp_to=20.0, ramp_seconds=100.0
    )
    slots = SlotTimeline([SlotPlan.from_message(said)])
    filler = SlotFiller(load_settings(), ManualClock(NOW), shards)
    rates = []
    select = shards[0].selector.select

    def selecting(times, rate, least):
        rates.append(rate)
        return select(times, rate, least)

    shards[0].selector.select = selecting
    made = 0
    for second in range(50):
        times, owners = slots.between(NOW + second, NOW + second + 1.0)
        emissions = filler.fill(times, owners, slots.newest)
        made += sum(len(emission.messages) for emission in emissions)
    # Nobody answers: half a time-out of a quarter of the rate, when the slots come to that.
    assert made == pytest.approx(0.5 * TIMEOUT * 0.25 * 6.0, rel=0.1)
    assert rates == pytest.approx([0.2 * second for second in range(4, 31)], abs=0.3)
