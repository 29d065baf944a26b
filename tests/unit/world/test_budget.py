"""Seconds over the budget, and how fast a changed budget is followed."""

import numpy as np
import pytest

from services.world.budget import Budget, overdrawn, seconds_until_reached
from services.world.plan import BudgetStep

DAY = 86_400.0


def budget(*steps: tuple[float, float]) -> Budget:
    """Steps as (second, crawls per second), on a clock of a day per second."""
    return Budget.from_steps([BudgetStep(at, rate / DAY) for at, rate in steps], DAY)


def test_a_second_may_hold_its_budget_and_one_more() -> None:
    plain = budget((0, 10))

    assert plain.seconds_over({0: 10, 1: 11, 2: 12, 3: 30}, end=10) == 2


def test_seconds_before_the_start_and_after_the_end_do_not_count() -> None:
    plain = budget((0, 10))

    assert plain.seconds_over({-1: 99, 5: 99, 9: 99, 10: 99}, end=9.5) == 1


def test_while_a_change_settles_the_higher_budget_holds() -> None:
    lowered = budget((0, 100), (5, 10))

    assert lowered.allowed(4, 5) == pytest.approx(100)
    assert lowered.allowed(6, 7) == pytest.approx(100)
    assert lowered.allowed(7, 8) == pytest.approx(10)
    assert budget((0, 10), (5, 100)).allowed(4, 5) == pytest.approx(10)
    assert budget((0, 10), (5.5, 100)).allowed(5, 6) == pytest.approx(55)


def test_of_changes_that_settle_at_once_the_highest_holds() -> None:
    """A ramp has just ended when the budget falls again: its end may still hold."""
    ramp = budget((0, 10), (5, 20), (6, 30), (7, 12))

    assert ramp.allowed(7.5, 8.0) == pytest.approx(15)
    assert ramp.allowed(8.0, 9.0) == pytest.approx(30)
    assert ramp.allowed(9.0, 10.0) == pytest.approx(12)


@pytest.mark.parametrize("window", [(0.0, 4.0), (4.5, 6.2), (6.5, 9.0), (0.0, 30.0)])
def test_what_a_window_may_hold_is_the_same_both_ways(window: tuple[float, float]) -> None:
    stepped = budget((0, 10), (5, 20), (6, 4))
    start, end = stepped.most_until(np.array(window))

    assert end - start == pytest.approx(stepped.allowed(*window))


def test_one_crawl_too_many_is_found_in_the_window_that_it_ends_in() -> None:
    slots = np.append(np.arange(0, 50) / 10, [4.95, 5.0, 5.1])
    room = budget((0, 10)).most_until(slots)

    [(time, excess)] = overdrawn(slots, room, room, 1.0)

    assert time == pytest.approx(4.95)
    assert excess == pytest.approx(0.5)
    assert overdrawn(slots[:50], room[:50], room[:50], 1.0) == []


def test_windows_may_begin_earlier_by_a_delay() -> None:
    plain = budget((0, 10))
    came = np.full(12, 5.0)
    until = plain.most_until(came)

    assert overdrawn(came, until, plain.most_until(came - 1.2), 1.0) == []
    assert len(overdrawn(came, until, plain.most_until(came - 1.0), 1.0)) == 1


def test_the_integral_follows_the_steps() -> None:
    stepped = budget((0, 10), (5, 20))

    assert stepped.integral(4) == pytest.approx(40)
    assert stepped.integral(7) == pytest.approx(90)
    assert stepped.rate_at(4.9) == pytest.approx(10)
    assert stepped.rate_at(5) == pytest.approx(20)


def test_the_time_to_a_higher_budget_is_found() -> None:
    times = np.concatenate([np.arange(0, 5.4, 0.01), np.arange(5.4, 12, 0.005)])

    assert seconds_until_reached(times, 5.0, 200.0, 100.0) == pytest.approx(0.35, abs=0.1)


def test_the_time_to_a_lower_budget_is_found() -> None:
    times = np.concatenate([np.arange(0, 6.0, 0.01), np.arange(6.0, 12, 0.1)])

    assert seconds_until_reached(times, 5.0, 10.0, 100.0) == pytest.approx(1.0, abs=0.1)


def test_a_budget_that_is_never_reached_is_told() -> None:
    assert seconds_until_reached(np.arange(0, 9, 0.1), 5.0, 50.0, 10.0) is None
    assert seconds_until_reached(np.empty(0), 5.0, 50.0, 10.0) is None
