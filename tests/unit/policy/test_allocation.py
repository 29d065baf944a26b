"""The exact optimum: limits kept, optimality conditions, a general convex solver's objective."""

import numpy as np
import pytest

from services.bench.convex_solver import best_objective
from services.bench.random_pages import random_population
from shared.policy.inverse import threshold_staleness
from shared.policy.model import PageParameters
from shared.policy.multipliers import solve_exact


@pytest.mark.parametrize("share", [0.05, 1.0, 3.0])
def test_rates_meet_the_budget_and_every_host_limit(share):
    params, hosts, caps, budget = random_population(20_000, 400, seed=6)
    budget *= share
    optimum = solve_exact(params, hosts, caps, budget)
    assert abs(optimum.rates.sum() - budget) <= 1e-9 * budget
    per_host = np.bincount(hosts, optimum.rates, len(caps))
    assert (per_host <= caps * (1 + 1e-9)).all()
    limited = optimum.host_multipliers > 0
    assert limited.any() == (share >= 1.0)
    np.testing.assert_allclose(per_host[limited], caps[limited], rtol=1e-9)
    thresholds = optimum.multiplier + optimum.host_multipliers[hosts]
    columns = (params.importance, params.alpha, params.kappa, params.gamma)
    rates = threshold_staleness(*columns, thresholds)[1]
    np.testing.assert_allclose(optimum.rates, rates, rtol=1e-6, atol=1e-9)


@pytest.mark.slow(1)
def test_objective_is_a_general_convex_solvers():
    params, hosts, caps, budget = random_population(400, 20, seed=7)
    optimum = solve_exact(params, hosts, caps, budget)
    assert (optimum.host_multipliers > 0).any()
    lower, upper = best_objective(params, hosts, caps, budget)
    assert lower * (1 - 1e-9) <= optimum.objective <= upper * (1 + 1e-9)
    assert upper - lower <= 1e-6 * upper


def test_budget_beyond_what_hosts_allow_takes_all_they_allow():
    params, hosts, caps, _ = random_population(500, 20, seed=8)
    caps = np.where(np.isfinite(caps), caps, 0.7)
    optimum = solve_exact(params, hosts, caps, 1e9)
    assert optimum.multiplier == 0.0
    assert optimum.rates.sum() == pytest.approx(caps[np.unique(hosts)].sum(), rel=1e-9)


def test_no_budget_no_pages_and_pages_that_never_change():
    params = PageParameters.from_columns([2.0, 3.0], [0.5, 0.0], 1.0, 0.0)
    nothing = solve_exact(params, None, None, 0.0)
    assert nothing.multiplier == np.inf
    np.testing.assert_array_equal(nothing.rates, 0.0)
    assert nothing.objective == 3.0
    assert solve_exact(params[:0], None, None, 1.0).objective == 0.0
    some = solve_exact(params, None, None, 0.25)
    np.testing.assert_allclose(some.rates, [0.25, 0.0])
    assert some.objective == pytest.approx(3.0 + 2.0 * 0.25 * -np.expm1(-2.0) / 0.5)


def test_demand_that_jumps_over_the_budget_is_shared():
    """Completely signalled pages are crawled at every n-th signal: only some rates exist."""
    params = PageParameters.from_columns(1.0, np.zeros(3), [0.5, 0.7, np.inf], [1.0, 2.0, 0.3])
    for budget in (0.1, 0.31, 1.234, 2.9):
        optimum = solve_exact(params, None, None, budget)
        assert optimum.rates.sum() == pytest.approx(budget, rel=1e-12)
    rising = [solve_exact(params, None, None, b).objective for b in np.linspace(0.1, 3.0, 30)]
    assert (np.diff(rising) > 0).all()
    assert (np.diff(rising, 2) < 1e-9).all()


def test_a_closed_host_gets_nothing():
    params = PageParameters.from_columns([1.0, 1.0], [0.5, 0.5], 0.0, 0.0)
    hosts = np.array([0, 1], np.int32)
    optimum = solve_exact(params, hosts, np.array([0.0, np.inf]), 0.4)
    np.testing.assert_allclose(optimum.rates, [0.0, 0.4])


def test_limits_far_above_what_pages_need_still_bind_in_the_end():
    params = PageParameters.from_columns(1.0, [0.5, 0.0], [0.3, 0.4], [0.2, 0.7])
    hosts = np.array([0, 1], np.int32)
    optimum = solve_exact(params, hosts, np.array([1e4, 1e4]), 1e9)
    assert optimum.multiplier == 0.0
    np.testing.assert_allclose(optimum.rates, [1e4, 0.7])  # at most one crawl a signal
