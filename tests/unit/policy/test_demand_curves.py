"""Demand curves: exact points, the histogram and the sample, merging, interpolation, λ₀."""

import numpy as np
import pytest

from services.bench.random_pages import random_population
from shared.policy.demand import demand_curve, interpolate_demand, log_grid, merge
from shared.policy.inverse import threshold_staleness
from shared.policy.model import PageParameters
from shared.policy.multipliers import solve_multiplier

GRID = log_grid(1e-2, 1e3, 64)


def direct_demand(params, host_index, caps, grid):
    columns = (params.importance, params.alpha, params.kappa, params.gamma)
    total = []
    for threshold in grid:
        rate = threshold_staleness(*columns, threshold)[1]
        total.append(np.minimum(np.bincount(host_index, rate, len(caps)), caps).sum())
    return np.array(total)


def test_curve_is_the_sum_over_hosts_of_what_they_allow():
    params, hosts, caps, _ = random_population(4000, 100, seed=1)
    curve = demand_curve(params, hosts, caps, GRID)
    expected = direct_demand(params, hosts, caps, GRID)
    np.testing.assert_allclose(curve, expected, rtol=1e-9)
    assert (np.diff(curve) < 0).all()
    everything = demand_curve(params, None, None, GRID)
    unlimited = direct_demand(params, hosts, np.full(len(caps), np.inf), GRID)
    np.testing.assert_allclose(everything, unlimited, rtol=1e-9)
    assert (everything >= curve * (1 - 1e-12)).all()


def test_histogram_of_pages_without_signals():
    params, hosts, caps, _ = random_population(60_000, 100, seed=9)
    silent = params.gamma == 0
    params, hosts = params[silent], hosts[silent]
    curve = demand_curve(params, None, None, GRID)
    expected = direct_demand(params, hosts, np.full(len(caps), np.inf), GRID)
    likely = expected > 1e-3 * expected[0]
    np.testing.assert_allclose(curve[likely], expected[likely], rtol=1e-4)


def test_sample_of_pages_with_signals_is_close():
    params, hosts, caps, _ = random_population(40_000, 100, seed=2)
    whole = demand_curve(params, hosts, caps, GRID)
    sampled = demand_curve(params, hosts, caps, GRID, max_exact=2000, seed=3)
    np.testing.assert_allclose(sampled[:32], whole[:32], rtol=0.01)
    likely = whole > 1e-3 * whole[0]
    np.testing.assert_allclose(sampled[likely], whole[likely], rtol=0.05)


def test_curves_of_disjoint_hosts_add():
    params, hosts, caps, _ = random_population(3000, 40, seed=3)
    even = hosts % 2 == 0
    parts = [demand_curve(params[part], hosts[part], caps, GRID) for part in (even, ~even)]
    whole = demand_curve(params, hosts, caps, GRID)
    np.testing.assert_allclose(merge(parts), whole, rtol=1e-9)


def test_pages_that_ask_for_nothing():
    params = PageParameters.from_columns([0.0, 1.0], [0.5, 0.0], 1.0, 0.0)
    np.testing.assert_array_equal(demand_curve(params, None, None, GRID), 0.0)
    np.testing.assert_array_equal(demand_curve(params[:0], None, None, GRID), 0.0)
    closed = demand_curve(
        PageParameters.from_columns(1.0, 0.5, 1.0, 0.3), np.zeros(1, np.int32), np.zeros(1), GRID
    )
    np.testing.assert_array_equal(closed, 0.0)


@pytest.mark.slow(1)
@pytest.mark.parametrize(("points", "error"), [(16, 3e-3), (64, 1e-3)])
def test_interpolation_between_the_points(points, error):
    params, hosts, caps, _ = random_population(60_000, 100, seed=4)
    grid = log_grid(1e-2, 10.0, points)
    curve = demand_curve(params, hosts, caps, grid)
    between = np.sqrt(grid[1:] * grid[:-1])
    expected = demand_curve(params, hosts, caps, between)
    np.testing.assert_allclose(interpolate_demand(grid, curve, between), expected, rtol=error)
    np.testing.assert_allclose(interpolate_demand(grid, curve, grid), curve, rtol=1e-12)


def test_interpolation_is_monotone_over_zeros_flats_and_ends():
    grid = log_grid(1.0, 32.0, 6)
    thresholds = np.geomspace(1e-3, 1e3, 500)
    for curve in (
        [9.0, 9.0, 9.0, 4.0, 0.0, 0.0],
        [9.0, 8.0, 8.1, 2.0, 2.0, 1.0],
        [5.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0] * 6,
    ):
        values = interpolate_demand(grid, np.array(curve), thresholds)
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        assert (np.diff(values) <= 1e-12).all()


def test_multiplier_meets_the_budget_on_the_curve():
    params, hosts, caps, budget = random_population(5000, 100, seed=5)
    curve = demand_curve(params, hosts, caps, GRID)
    for share in (0.05, 0.3, 1.0, 2.0):
        multiplier = solve_multiplier(GRID, curve, share * budget)
        met = interpolate_demand(GRID, curve, np.array([multiplier]))[0]
        assert met == pytest.approx(share * budget, rel=1e-11)


def test_multiplier_at_the_ends():
    grid = log_grid(1.0, 32.0, 6)
    falling = np.array([32.0, 16.0, 8.0, 4.0, 0.0, 0.0])
    assert solve_multiplier(grid, falling, 0.0) == np.inf
    assert solve_multiplier(grid, falling, 64.0) == pytest.approx(0.25)  # D ∝ Λ^−½ below the grid
    assert 8.0 < solve_multiplier(grid, falling, 1.0) < 16.0
    flat = np.array([32.0, 32.0, 32.0, 16.0, 8.0, 4.0])
    assert solve_multiplier(grid, flat, 33.0) == 0.0
    assert solve_multiplier(grid, flat, 32.0) == 4.0
    assert solve_multiplier(grid, flat, 1.0) == 32.0
    assert solve_multiplier(grid, np.zeros(6), 1.0) == 0.0


def test_refuses_grids_that_are_none():
    with pytest.raises(ValueError, match="0 < low < high"):
        log_grid(0.0, 1.0, 8)
    with pytest.raises(ValueError, match="same length"):
        solve_multiplier(GRID, np.ones(3), 1.0)


@pytest.mark.parametrize("share", [1e-20, 1e-16, 1.0 - 1e-16, 1.0, 1.0 + 3e-16])
def test_rounding_does_not_leave_a_budget_without_a_multiplier(share):
    random = np.random.default_rng(5)
    for _ in range(300):
        grid = np.sort(random.lognormal(0.0, 3.0, 8))
        demand = np.sort(random.lognormal(0.0, 2.0, 8))[::-1].copy()
        demand[random.integers(1, 9) :] = 0.0
        budget = demand[random.integers(0, np.count_nonzero(demand))] * share
        if budget <= demand[0]:
            assert grid[0] * (1 - 1e-9) <= solve_multiplier(grid, demand, budget)
        assert solve_multiplier(grid, demand, budget) <= grid[-1] * (1 + 1e-9)
