"""LambdaCrawl: constraint, KKT conditions, optimality against a general solver, edge cases."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from shared.policy.lambdacrawl.costs import harmonic_cost
from shared.policy.lambdacrawl.harmonic import (
    lambda_crawl,
    lambda_crawl_approximate,
    lambda_crawl_complete,
    lambda_crawl_incomplete,
)


def population(pages: int, seed: int, complete_share: float = 0.3):
    rng = np.random.default_rng(seed)
    importance = rng.pareto(1.2, pages) + 0.01
    change_rate = 10 ** rng.uniform(-3, 1, pages)
    return importance, change_rate, rng.random(pages) < complete_share


def worst_kkt_violation(importance, change_rate, complete, policy) -> float:
    """Relative distance of each page's marginal value from λ; at p = 1 only a shortfall counts."""
    rates, multiplier = policy
    polled = importance * change_rate / (rates * (rates + change_rate))
    marginal = np.where(complete, importance / rates, polled)
    gap = marginal / multiplier - 1.0
    capped = complete & (rates >= change_rate)
    return np.abs(np.where(capped, np.minimum(gap, 0.0), gap)).max()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("budget", [1e-4, 0.2, 0.9])
def test_constraint_and_kkt(share, budget):
    columns = population(20_000, seed=1, complete_share=share)
    bandwidth = budget * columns[1].sum()
    policy = lambda_crawl(*columns, bandwidth)
    assert policy.rates.sum() == pytest.approx(bandwidth, rel=1e-12)
    assert worst_kkt_violation(*columns, policy) < 1e-9
    assert (policy.rates > 0).all()
    assert (policy.rates[columns[2]] <= columns[1][columns[2]]).all()


@pytest.mark.parametrize("budget", [0.02, 0.2, 0.8])
def test_never_dearer_than_a_general_solver(budget):
    importance, change_rate, complete = population(25, seed=2)
    bandwidth = budget * change_rate.sum()
    ours = harmonic_cost(
        importance,
        change_rate,
        lambda_crawl(importance, change_rate, complete, bandwidth).rates,
        complete,
    )

    def cost(rates):
        feasible = np.where(complete, np.minimum(rates, change_rate), rates)
        return harmonic_cost(importance, change_rate, feasible, complete)

    upper = np.where(complete, change_rate, bandwidth)
    theirs = minimize(
        cost,
        np.full(25, bandwidth / 25).clip(1e-6, upper),
        method="SLSQP",
        bounds=list(zip(np.full(25, 1e-9), upper, strict=True)),
        constraints={"type": "eq", "fun": lambda rates: rates.sum() / bandwidth - 1.0},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    feasible = theirs.x * bandwidth / theirs.x.sum()
    assert ours <= cost(feasible) + 1e-9 * abs(ours)
    assert ours == pytest.approx(cost(feasible), rel=1e-3)


def test_agrees_with_the_split_search_of_the_paper():
    importance, change_rate, complete = population(200, seed=3)
    bandwidth = 20.0

    def split_cost(part):
        rates = np.zeros(200)
        rates[~complete] = lambda_crawl_incomplete(
            importance[~complete], change_rate[~complete], bandwidth - part
        ).rates
        rates[complete] = lambda_crawl_complete(
            importance[complete], change_rate[complete], part
        ).rates
        return harmonic_cost(importance, change_rate, rates, complete)

    searched = minimize_scalar(split_cost, bounds=(1e-6, 19.999), method="bounded")
    policy = lambda_crawl(importance, change_rate, complete, bandwidth)
    ours = harmonic_cost(importance, change_rate, policy.rates, complete)
    assert ours <= searched.fun * (1 + 1e-14)
    assert ours == pytest.approx(searched.fun, rel=1e-6)


def test_extreme_pages_to_fifty_digits():
    importance, change_rate = [1e-8, 1.0, 1e6], [1e4, 1e-6, 3.0]
    policy = lambda_crawl_incomplete(importance, change_rate, 2.0)
    with mpmath.workdps(50):
        columns = [
            tuple(map(mpmath.mpf, pair)) for pair in zip(importance, change_rate, strict=True)
        ]

        def rates(multiplier):
            return [(mpmath.sqrt(d * d + 4 * m * d / multiplier) - d) / 2 for m, d in columns]

        root = mpmath.findroot(
            lambda logarithm: sum(rates(mpmath.e**logarithm)) - 2, mpmath.log(policy.multiplier)
        )
        exact = [float(rate) for rate in rates(mpmath.e**root)]
    np.testing.assert_allclose(policy.rates, exact, rtol=1e-13)


def test_more_bandwidth_than_changes_of_complete_pages_is_left_over():
    policy = lambda_crawl_complete([1.0, 2.0, 0.0], [0.5, 0.25, 9.0], 10.0)
    assert policy.rates.tolist() == [0.5, 0.25, 0.0]
    assert policy.multiplier == 0.0


def test_pages_without_importance_or_changes_get_nothing():
    policy = lambda_crawl([0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [False, False, True], 0.5)
    np.testing.assert_allclose(policy.rates, [0.0, 0.0, 0.5])


def test_proposition_9_makes_the_approximation_exact():
    importance = np.array([1.0, 5.0, 0.1])
    exact = lambda_crawl(importance, 3 * importance, None, 2.0)
    close = lambda_crawl_approximate(importance, 3 * importance, None, 2.0)
    np.testing.assert_allclose(close.rates, exact.rates, rtol=1e-12)
    np.testing.assert_allclose(close.rates, 2.0 * importance / importance.sum(), rtol=1e-14)
    assert close.multiplier == pytest.approx(exact.multiplier)


@pytest.mark.parametrize("budget", [0.01, 0.2, 0.7])
def test_the_approximation_splits_the_bandwidth_best(budget):
    importance, change_rate, complete = population(300, seed=4)
    bandwidth = budget * change_rate.sum()
    policy = lambda_crawl_approximate(importance, change_rate, complete, bandwidth)
    assert policy.rates.sum() == pytest.approx(bandwidth, rel=1e-12)
    least = harmonic_cost(importance, change_rate, policy.rates, complete)
    optimum = lambda_crawl(importance, change_rate, complete, bandwidth).rates
    assert harmonic_cost(importance, change_rate, optimum, complete) <= least
    part = policy.rates[~complete].sum()
    for other in (0.99 * part, 1.01 * part):
        if other >= bandwidth:
            continue
        rates = np.zeros(300)
        rates[~complete] = other * importance[~complete] / importance[~complete].sum()
        rates[complete] = lambda_crawl_complete(
            importance[complete], change_rate[complete], bandwidth - other
        ).rates
        assert harmonic_cost(importance, change_rate, rates, complete) >= least


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9), st.booleans()),
        min_size=1,
        max_size=20,
    ),
    st.floats(1e-6, 1e6),
)
def test_any_population_spends_the_bandwidth(rows, bandwidth):
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    for solve in (lambda_crawl, lambda_crawl_approximate):
        policy = solve(*columns, bandwidth)
        assert np.isfinite(policy.rates).all()
        assert (policy.rates >= 0).all()
        useful = columns[1].sum() if columns[2].all() else np.inf
        assert policy.rates.sum() == pytest.approx(min(bandwidth, useful), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 100), st.floats(1.01, 10))
def test_more_bandwidth_never_lowers_a_rate(bandwidth, factor):
    columns = population(50, seed=5)
    fewer = lambda_crawl(*columns, bandwidth)
    more = lambda_crawl(*columns, bandwidth * factor)
    assert (more.rates >= fewer.rates * (1 - 1e-12)).all()
    assert more.multiplier <= fewer.multiplier


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, -1.0], [1.0, 1.0], None, 1.0), r"page 1: importance is -1\.0"),
        (([1.0], [np.nan], None, 1.0), "page 0: change_rate is nan"),
        (([1.0], [1.0], None, 0.0), "bandwidth is 0"),
        (([1.0], [1.0, 2.0], None, 1.0), "columns of one length"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        lambda_crawl(*arguments)
