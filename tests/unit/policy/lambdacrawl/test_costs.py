"""Harmonic and binary costs: limits, and simulation of the policies that they describe."""

import numpy as np
import pytest

from shared.policy.lambdacrawl.costs import (
    binary_cost,
    binary_costs,
    crawl_probabilities,
    harmonic_cost,
    harmonic_costs,
)


def simulated_costs(change_rate: float, crawl: float, complete: bool, days: float, seed: int):
    """Time averages of H(n) and 1[n > 0], n the changes since the last crawl."""
    rng = np.random.default_rng(seed)
    changes = rng.poisson(change_rate * days)
    crawls = 0 if complete else rng.poisson(crawl * days)
    times = rng.uniform(0, days, changes + crawls)
    change = np.arange(times.size) < changes
    order = np.argsort(times)
    times, change = times[order], change[order]
    caught = rng.random(times.size) < crawl / change_rate
    harmonic = binary = penalty = 0.0
    missed = 0
    for gap, is_change, is_caught in zip(np.diff(times, append=days), change, caught, strict=True):
        cleared = is_caught if complete else not is_change
        missed = 0 if cleared else missed + 1
        penalty = 0.0 if cleared else penalty + 1.0 / missed
        harmonic += penalty * gap
        binary += (missed > 0) * gap
    return harmonic / days, binary / days


@pytest.mark.parametrize("complete", [False, True])
def test_formulas_are_the_long_run_averages(complete):
    arguments = ([1.0], [2.0], [0.7], [complete])
    samples = np.array([simulated_costs(2.0, 0.7, complete, 3000.0, seed) for seed in range(8)])
    error = samples.std(axis=0, ddof=1) / np.sqrt(8)
    exact = np.array([harmonic_cost(*arguments), binary_cost(*arguments)])
    assert (np.abs(samples.mean(axis=0) - exact) < 4 * error).all()


def test_limits():
    importance, change_rate = [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]
    rates = [0.0, 0.0, 0.0, np.inf]
    assert harmonic_costs(importance, change_rate, rates).tolist() == [np.inf, 0.0, 0.0, 0.0]
    assert binary_costs(importance, change_rate, rates).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_complete_signals_are_crawled_by_probability():
    every = [True] * 3
    assert crawl_probabilities([0.0, 1.0, 2.0], 2.0).tolist() == [0.0, 0.5, 1.0]
    costs = harmonic_costs([2.0] * 3, [2.0] * 3, [0.0, 1.0, 2.0], every)
    np.testing.assert_allclose(costs, [np.inf, 2 * np.log(2), 0.0])
    assert binary_costs([2.0] * 3, [2.0] * 3, [0.0, 1.0, 2.0], every).tolist() == [2.0, 1.0, 0.0]


def test_rates_beyond_the_changes_of_complete_pages_are_refused():
    with pytest.raises(ValueError, match="page 1: crawl rate is 3"):
        harmonic_costs([1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [False, True])
    with pytest.raises(ValueError, match="page 0: crawl rate is -1"):
        binary_cost([1.0], [1.0], [-1.0])
