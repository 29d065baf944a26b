"""Peers as they would be at their best: signals first, no page lost, grids that fit the budget."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import hand_made, paper_trace

from services.replay.books import settle
from services.replay.by_schedule import (
    CLIMBED,
    DRAWN,
    FIXED,
    NUTCH,
    Schedule,
    SchedulePolicy,
    run_by_schedule,
)
from services.replay.policies import POLICIES, replay_policy
from services.replay.slots import Budget
from services.replay.trace import Trace

BUDGET = Budget.constant(10.0)
NEVER = FIXED._replace(interval_days=1e6)
"""Visits nothing but what it is told of."""

TOLD = NEVER._replace(told_share=1.0)


def told_of(signals: list[tuple[float, int]], pages: int = 3) -> Trace:
    """Pages of importance 1, 2, 3, … that send signals and never change."""
    return replace(
        hand_made([], pages=pages),
        signal_days=np.array([day for day, _ in signals]),
        signal_pages=np.array([page for _, page in signals], np.int64),
        signal_sources=np.zeros(len(signals), np.int64),
    )


def visits(trace: Trace, schedule: Schedule, slots: list[float]) -> list[int]:
    return run_by_schedule(trace, np.array(slots), schedule, 0).tolist()


def test_of_pages_that_sent_signals_the_most_important_comes_first() -> None:
    trace = told_of([(1.0, 0), (1.1, 2), (1.2, 1)])
    by_importance = TOLD._replace(told_by_importance=True)
    assert visits(trace, by_importance, [2.0, 3.0, 4.0, 5.0]) == [2, 1, 0, -1]
    # By lag: that whose signal is the furthest ahead of its copy.
    assert visits(trace, TOLD, [2.0, 3.0, 4.0, 5.0]) == [1, 2, 0, -1]


def test_of_equally_important_ones_the_oldest_copy_comes_first() -> None:
    trace = replace(
        told_of([(0.1, 1), (0.2, 0), (0.3, 2), (2.0, 0), (2.1, 2), (2.2, 1)]), importance=np.ones(3)
    )
    by_importance = TOLD._replace(told_by_importance=True)
    first = visits(trace, by_importance, [0.15, 0.25, 0.35, 3.0, 4.0, 5.0])
    assert first == [1, 0, 2, 1, 0, 2]


def test_a_signal_is_first_and_then_comes_what_is_due_by_importance() -> None:
    trace = told_of([(5.0, 0)], pages=4)
    schedule = FIXED._replace(interval_days=1.0, told_share=1.0, by_importance=True)
    assert visits(trace, schedule, [5.0, 5.1, 5.2, 5.3]) == [0, 3, 2, 1]
    # A share of a half leaves every other slot to what is due.
    many = told_of([(5.0, 0), (5.0, 1)], pages=4)
    shared = schedule._replace(told_share=0.5)
    assert visits(many, shared, [5.0, 5.1, 5.2, 5.3, 5.4]) == [3, 0, 2, 1, -1]


def test_a_page_of_a_busy_host_is_visited_when_the_host_is_free() -> None:
    trace = replace(
        told_of([(1.0, 0), (1.0, 1), (1.0, 2)]),
        host=np.array([0, 0, 0]),
        host_names=("slow",),
        site=np.zeros(1, np.int64),
        host_limit=np.array([0.5]),
    )
    for by_importance in (False, True):
        schedule = TOLD._replace(told_by_importance=by_importance)
        seen = visits(trace, schedule, [1.0, 1.1, 1.2, 1.3, 2.0, 2.9, 3.1, 4.0])
        assert sorted(page for page in seen if page >= 0) == [0, 1, 2], "no signal is lost"
        assert [slot for slot, page in enumerate(seen) if page >= 0] == [0, 1, 6]


def test_a_page_that_is_not_known_yet_holds_up_nobody() -> None:
    trace = replace(
        hand_made([], pages=2), born_days=np.array([5.0, 0.0]), held=np.array([False, True])
    )
    schedule = FIXED._replace(interval_days=8.0, early=True)
    assert visits(trace, schedule, [1.0, 2.0, 3.0, 6.0]) == [1, 1, 1, 0]


def test_a_signal_of_before_the_visit_is_no_news_even_if_it_is_read_later() -> None:
    trace = told_of([(1.0, 1), (4.0, 0), (4.0, 1)])
    slots = np.array([2.0, 5.0, 6.0])
    about = np.array([0.5, 1.5, 3.9])
    assert run_by_schedule(trace, slots, TOLD, 0, about).tolist() == [1, 1, 0]
    about = np.array([0.5, 1.5, 1.9])
    assert run_by_schedule(trace, slots, TOLD, 0, about).tolist() == [1, 0, -1]


def test_tuning_finds_what_no_change_of_one_field_betters() -> None:
    trace = paper_trace(pages=40, days=40.0, recall=(2.0, 1.0))
    slots = BUDGET.slot_times(trace.days)
    pass_days = 40 / 10.0

    def staleness(schedule: Schedule) -> float:
        return settle(trace, slots, run_by_schedule(trace, slots, schedule, 1)).staleness

    policy = POLICIES["nutch-at-best"]
    assert isinstance(policy, SchedulePolicy)
    tuned = replay_policy(trace, BUDGET, "nutch-at-best", seed=1)
    assert tuned.parameters["pass_days"] == pass_days
    assert tuned.parameters["variants"] > DRAWN + CLIMBED
    best = Schedule(**{name: tuned.parameters[name] for name in Schedule._fields})
    assert tuned.books.staleness <= staleness(NUTCH)
    for name, values in policy.grid.items():
        for value in values:
            given = value * pass_days if name in ("interval_days", "longest_days") else value
            assert tuned.books.staleness <= staleness(best._replace(**{name: given}))


@pytest.mark.parametrize("rate", [0.5, 50.0])
def test_a_pass_is_within_the_grid_at_any_budget(rate: float) -> None:
    policy = POLICIES["nutch-tuned"]
    assert isinstance(policy, SchedulePolicy)
    tried: list[Schedule] = []

    def heard(schedule: Schedule) -> float:
        tried.append(schedule)
        return abs(schedule.interval_days - 1000.0 / rate)

    best = policy.tuned(heard, 1000.0 / rate, np.random.default_rng(0))
    assert best.interval_days == 1000.0 / rate
    assert len(tried) == len(set(tried))
    assert NUTCH in tried


def test_a_small_grid_is_tried_whole() -> None:
    policy = POLICIES["fixed-interval-tuned"]
    assert isinstance(policy, SchedulePolicy)
    tried = set()

    def heard(schedule: Schedule) -> float:
        tried.add(schedule)
        return 0.0

    policy.tuned(heard, 30.0, np.random.default_rng(0))
    for early in (False, True):
        for passes in policy.grid["interval_days"]:
            assert FIXED._replace(early=early, interval_days=30.0 * passes) in tried


@pytest.mark.slow(0.5)
def test_told_of_importance_and_signals_a_peer_is_fresher() -> None:
    trace = paper_trace(pages=60, days=60.0, recall=(9.0, 1.0))
    rng = np.random.default_rng(1)
    trace = replace(trace, importance=1.0 + rng.pareto(1.2, 60), known=None)
    tuned, best, ours = (
        replay_policy(trace, BUDGET, name).books.staleness
        for name in ("nutch-tuned", "nutch-at-best", "freshet")
    )
    assert ours < best < 0.8 * tuned
