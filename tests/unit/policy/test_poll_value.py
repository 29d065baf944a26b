"""What a poll is worth: the formulas against what they say they are."""

import numpy as np
import pytest

from shared.policy.polls import (
    MEMORY_DAYS,
    PollRecord,
    poll_interval,
    signal_worth,
    staleness_saved,
)


def due_exponent(level):
    """s* with 1 − (1 + s)e^{−s} = level, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        value = 1.0 - (1.0 + middle) * np.exp(-middle)
        low, high = (middle, high) if value < level else (low, middle)
    return low


@pytest.mark.parametrize("kappa", [0.01, 0.3, 1.0, 4.0, np.inf])
@pytest.mark.parametrize("level", [1e-4, 0.05, 0.4, 0.9])
def test_knowing_a_signal_saves_what_a_page_above_its_threshold_costs_a_day(kappa, level):
    alpha, gamma, importance = 0.2, 0.1, 3.0
    rate = alpha + gamma * -np.expm1(-kappa)
    due = due_exponent(level)
    before = (np.arange(100_000) + 0.5) / 100_000 * due
    saved = np.maximum(np.exp(-due) - np.exp(-(before + kappa)), 0.0).mean()
    worth = signal_worth(importance, alpha, kappa, gamma, level * importance / rate)
    assert worth[0] == pytest.approx(importance * saved, rel=1e-4)


def test_a_page_that_is_never_worth_a_crawl_is_not_worth_a_poll():
    worth = signal_worth([1.0, 1.0, 0.0, 1.0], [0.5, 2.0, 0.5, 0.0], 1.0, 0.0, 1.0)
    assert worth[0] > 0.0
    assert worth[1:].tolist() == [0.0, 0.0, 0.0]


def test_a_page_in_high_demand_is_worth_its_importance_times_the_truth_of_its_signals():
    kappa = np.array([0.0, 0.1, np.log(2.0), np.inf])
    worth = signal_worth(5.0, 0.1, kappa, 0.1, 1e-12)
    np.testing.assert_allclose(worth, 5.0 * -np.expm1(-kappa), atol=1e-4)


def test_no_other_interval_costs_less():
    rng = np.random.default_rng(5)
    worth, rates = rng.pareto(1.5, 300), rng.gamma(0.5, 0.02, 300)
    price = 2.0

    def cost(days):
        # (∫L + price) a day.
        unknown = worth * (days + np.expm1(-rates * days) / rates)
        return (unknown.sum() + price) / days

    best = poll_interval(float((worth * rates).sum()), price)
    others = [cost(best * factor) for factor in np.geomspace(0.1, 10.0, 41)]
    assert cost(best) <= min(others) * 1.002
    assert cost(best / 3.0) > 1.2 * cost(best) < cost(best * 3.0)


def test_what_hides_between_two_polls_does_not_mislead():
    # Each page changes about once between two polls, and shows once at most.
    rng = np.random.default_rng(6)
    worth, rate, price = np.full(40, 1.0), 1.0, 0.264 * 40
    record, days = PollRecord(), 1.0
    for _ in range(300):
        shown = rng.random(40) < -np.expm1(-rate * days)
        record = record.after(days, int(shown.sum()), float(worth[shown].sum()))
        days = poll_interval(record.worth_a_day(price), price)
    # V = 40 h(τ) = 0.264 · 40 at τ = 1.
    assert days == pytest.approx(0.9, abs=0.08)


def test_a_record_forgets_and_a_quiet_source_is_asked_ever_more_rarely():
    record = PollRecord().after(1.0, 4, 8.0)
    assert record == (8.0, 4.0, 1.0)
    assert record.worth_a_day(1.0) == 8.0 + 0.5 * 2.0
    later = record.after(MEMORY_DAYS, 0, 0.0)
    assert later.worth == pytest.approx(8.0 / np.e)
    intervals, quiet = [], PollRecord()
    for _ in range(6):
        quiet = quiet.after(10.0, 0, 0.0)
        intervals.append(poll_interval(quiet.worth_a_day(1.0), 1.0))
    assert intervals == sorted(intervals)
    assert intervals[0] == pytest.approx(np.sqrt(2.0 * 10.0 / 0.5))


def test_what_polls_save_is_the_staleness_between_rare_ones_less_that_between_ours():
    rng = np.random.default_rng(9)
    # Signals that make a page of some importance stale come evenly; each is known at the next poll.
    times, importance = rng.uniform(0.0, 200.0, 20_000), rng.gamma(2.0, 1.0, 20_000)

    def stale(every):
        return float((importance * (np.ceil(times / every) * every - times)).sum() / 200.0)

    record = PollRecord(float(importance.sum()), 20_000.0, 200.0)
    assert staleness_saved(record, 0.1, 1.0) == pytest.approx(stale(1.0) - stale(0.1), rel=0.02)
    assert staleness_saved(record, 1.0, 1.0) == staleness_saved(record, 2.0, 1.0) == 0.0
    assert staleness_saved(PollRecord(0.0, 0.0, 5.0), 0.1, 1.0) == 0.0
