"""BinaryLambdaCrawl with and without floor against sorting and a general solver; rules of thumb."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from shared.policy.lambdacrawl.binary import binary_lambda_crawl, binary_lambda_crawl_with_floor
from shared.policy.lambdacrawl.costs import binary_cost
from shared.policy.lambdacrawl.heuristics import change_rate_crawl, uniform_crawl


def population(pages: int, seed: int):
    rng = np.random.default_rng(seed)
    return rng.pareto(1.2, pages) + 0.01, 10 ** rng.uniform(-2, 1, pages)


def by_sorting(importance, change_rate, bandwidth):
    """Azar et al.: the crawled pages are those of highest μ/Δ; try every number of them."""
    order = np.argsort(-importance / change_rate)
    root = np.sqrt(importance * change_rate)[order]
    changes = change_rate[order]
    scale = (bandwidth + np.cumsum(changes)) / np.cumsum(root)
    crawled = np.flatnonzero(scale * root > changes)[-1] + 1
    rates = np.zeros(importance.size)
    rates[order[:crawled]] = scale[crawled - 1] * root[:crawled] - changes[:crawled]
    return rates


@pytest.mark.parametrize("bandwidth", [0.5, 20.0, 5000.0])
def test_matches_the_sorted_solution(bandwidth):
    importance, change_rate = population(2000, seed=1)
    policy = binary_lambda_crawl(importance, change_rate, bandwidth)
    expected = by_sorting(importance, change_rate, bandwidth)
    np.testing.assert_allclose(policy.rates, expected, rtol=1e-9, atol=1e-12 * bandwidth)
    assert policy.rates.sum() == pytest.approx(bandwidth, rel=1e-12)
    starved = policy.rates == 0
    assert (importance / change_rate)[starved].max(initial=0.0) <= policy.multiplier * (1 + 1e-9)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_never_dearer_than_a_general_solver(share):
    importance, change_rate = population(20, seed=2)
    bandwidth, floor = 6.0, share * 6.0 / 20
    rates = binary_lambda_crawl_with_floor(importance, change_rate, bandwidth, share).rates
    assert rates.min() >= floor
    theirs = minimize(
        lambda x: binary_cost(importance, change_rate, x),
        np.full(20, bandwidth / 20),
        method="SLSQP",
        bounds=[(floor, bandwidth)] * 20,
        constraints={"type": "eq", "fun": lambda x: x.sum() - bandwidth},
        options={"maxiter": 500, "ftol": 1e-13},
    )
    ours = binary_cost(importance, change_rate, rates)
    assert ours <= theirs.fun + 1e-9
    assert ours == pytest.approx(theirs.fun, rel=1e-5)


def test_floor_equals_the_repeated_solution_of_the_paper():
    importance, change_rate = population(500, seed=3)
    bandwidth = 100.0
    floor = 0.4 * bandwidth / 500
    rates = binary_lambda_crawl(importance, change_rate, bandwidth).rates
    fixed = np.zeros(500, dtype=bool)
    while (rates[~fixed] < floor).any():
        fixed |= rates < floor
        rates = np.full(500, floor)
        rates[~fixed] = binary_lambda_crawl(
            importance[~fixed], change_rate[~fixed], bandwidth - floor * fixed.sum()
        ).rates
    ours = binary_lambda_crawl_with_floor(importance, change_rate, bandwidth)
    np.testing.assert_allclose(ours.rates, rates, rtol=1e-10)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=20),
    st.floats(1e-6, 1e6),
    st.floats(0, 1),
)
def test_any_population_spends_the_bandwidth(rows, bandwidth, share):
    importance, change_rate = (np.array(column) for column in zip(*rows, strict=True))
    if not (importance * change_rate > 0).any():
        with pytest.raises(ValueError, match="no crawl is of use"):
            binary_lambda_crawl_with_floor(importance, change_rate, bandwidth, share)
        return
    rates = binary_lambda_crawl_with_floor(importance, change_rate, bandwidth, share).rates
    assert (rates >= 0).all()
    # ρ = s√(μΔ) − Δ is a difference: its rounding is that of the largest Δ among the crawled.
    rounding = 1e-12 * bandwidth + 1e-14 * change_rate.sum()
    assert rates.sum() == pytest.approx(bandwidth, abs=rounding)


def test_rules_of_thumb():
    assert change_rate_crawl([1.0, 3.0, 0.0], 2.0).tolist() == [0.5, 1.5, 0.0]
    assert uniform_crawl(4, 2.0).tolist() == [0.5] * 4


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="no page changes"):
        change_rate_crawl([0.0], 1.0)
    with pytest.raises(ValueError, match="at least one page"):
        uniform_crawl(0, 1.0)
    with pytest.raises(ValueError, match="floor_share is 2"):
        binary_lambda_crawl_with_floor([1.0], [1.0], 1.0, 2.0)
