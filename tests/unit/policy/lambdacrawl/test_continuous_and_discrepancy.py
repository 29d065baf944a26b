"""The optimum at even intervals, and the order of crawls that follows given rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from shared.policy.lambdacrawl.binary import binary_lambda_crawl
from shared.policy.lambdacrawl.continuous import continuous_freshness, optimal_continuous_rates
from shared.policy.lambdacrawl.costs import binary_cost
from shared.policy.lambdacrawl.discrepancy import low_discrepancy_schedule


def population(pages: int, seed: int):
    rng = np.random.default_rng(seed)
    return rng.pareto(1.2, pages) + 0.01, 10 ** rng.uniform(-2, 1, pages)


@pytest.mark.parametrize("bandwidth", [1.0, 300.0, 50_000.0])
def test_constraint_and_equal_crawl_value(bandwidth):
    importance, change_rate = population(3000, seed=1)
    policy = optimal_continuous_rates(importance, change_rate, bandwidth)
    assert policy.rates.sum() == pytest.approx(bandwidth, rel=1e-12)
    crawled = policy.rates > 0
    u = change_rate[crawled] / policy.rates[crawled]
    value = importance[crawled] / change_rate[crawled] * (-np.expm1(-u) - u * np.exp(-u))
    np.testing.assert_allclose(value, policy.multiplier, rtol=1e-8)
    starved = importance[~crawled] / change_rate[~crawled]
    assert (starved <= policy.multiplier).all()


def test_never_worse_than_a_general_solver():
    importance, change_rate = population(20, seed=2)
    rates = optimal_continuous_rates(importance, change_rate, 8.0).rates
    theirs = minimize(
        lambda x: -continuous_freshness(importance, change_rate, x).sum(),
        np.full(20, 0.4),
        method="SLSQP",
        bounds=[(0.0, 8.0)] * 20,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 8.0},
        options={"maxiter": 500, "ftol": 1e-13},
    )
    ours = continuous_freshness(importance, change_rate, rates).sum()
    assert ours >= -theirs.fun - 1e-9
    assert ours == pytest.approx(-theirs.fun, rel=1e-5)


def test_even_intervals_beat_random_times():
    importance, change_rate = population(400, seed=3)
    even = optimal_continuous_rates(importance, change_rate, 100.0).rates
    stale = importance.sum() - continuous_freshness(importance, change_rate, even).sum()
    random = binary_lambda_crawl(importance, change_rate, 100.0).rates
    assert stale < binary_cost(importance, change_rate, random)


def test_freshness_limits():
    fresh = continuous_freshness([2.0, 2.0, 2.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1e9])
    np.testing.assert_allclose(fresh, [2.0, 0.0, 2.0], rtol=1e-8)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=20),
    st.floats(1e-3, 1e4),
)
def test_any_population_spends_the_bandwidth(rows, bandwidth):
    importance, change_rate = (np.array(column) for column in zip(*rows, strict=True))
    rates = optimal_continuous_rates(importance, change_rate, bandwidth).rates
    assert (rates >= 0).all()
    assert rates.sum() == pytest.approx(bandwidth, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.integers(1, 400))
def test_discrepancy_stays_below_one(rates, crawls):
    order = low_discrepancy_schedule(rates, crawls)
    shares = np.array(rates) / np.sum(rates)
    done = np.cumsum(order[:, None] == np.arange(len(rates)), axis=0)
    due = np.arange(1, crawls + 1)[:, None] * shares
    assert np.abs(done - due).max() < 1 + 1e-9


def test_schedule_is_periodic_for_rational_rates():
    order = low_discrepancy_schedule([1.0, 2.0, 1.0, 0.0], 400)
    assert (order[:4] == order[4:].reshape(-1, 4)).all()
    assert np.bincount(order, minlength=4).tolist() == [100, 200, 100, 0]


def test_bad_input_is_named():
    for rates, message in (([-1.0], "finite numbers"), ([0.0], "positive rate")):
        with pytest.raises(ValueError, match=message):
            low_discrepancy_schedule(rates, 1)
    with pytest.raises(ValueError, match="crawls is -1"):
        low_discrepancy_schedule([1.0], -1)
    with pytest.raises(ValueError, match="no crawl is of use"):
        optimal_continuous_rates([1.0], [0.0], 1.0)
