"""λ₀ and shares from demand curves with known answers."""

import numpy as np
import pytest
from coordination_run import GRID as RUN_GRID
from coordination_run import Run, report
from hypothesis import given, settings
from hypothesis import strategies as st

from services.coordinator.allotment import relaxation
from services.coordinator.solver import (
    check_curve,
    demand_at,
    gather,
    limits_of,
    solve_slots,
    solve_threshold,
)
from shared.contracts.messages import DemandCurve
from shared.policy.demand import interpolate_demand
from shared.policy.multipliers import solve_multiplier

GRID = [10 ** (k / 8) for k in range(-32, 17)]


def curve(shard, demand, ripe=None, pages=1000, grid=None):
    grid = GRID if grid is None else grid
    return DemandCurve(
        shard=shard,
        instance="s",
        reported_at=0.0,
        pages=pages,
        thresholds=list(grid),
        demand=[float(demand(x)) for x in grid],
        ripe=[float(ripe(x)) if ripe else 0.0 for x in grid],
        achieved_crawls_per_second=0.0,
        host_limited_share=0.0,
        marginal_value=0.0,
    )


def root(scale):
    return lambda x: scale / x**0.5


def curves(*made):
    return gather({c.shard: c for c in made})


def shares_of(*given, **named):
    return solve_slots(*given, **named).shares


def slot_value(*given):
    return solve_slots(*given).value


@pytest.mark.parametrize("budget", [0.5, 3.0, 10.0, 200.0])
def test_the_threshold_is_where_all_demand_meets_the_budget(budget):
    both = curves(curve(0, root(1.0)), curve(1, root(3.0)))
    assert solve_threshold(both, budget) == pytest.approx((4.0 / budget) ** 2, rel=1e-9)
    assert demand_at(both, solve_threshold(both, budget)).sum() == pytest.approx(budget, rel=0.02)


def test_curves_on_shifted_parts_of_the_grid_add_up():
    shifted = curves(curve(0, root(1.0), grid=GRID[:40]), curve(1, root(3.0), grid=GRID[5:]))
    assert list(shifted.grid) == GRID
    assert solve_threshold(shifted, 10.0) == pytest.approx(0.16, rel=1e-6)


NO_LIMITS = np.full(2, np.inf)


@pytest.mark.parametrize(
    ("budget", "crawls_per_second"),
    [(0.5, 4.0 / 60.0), (3.0, 4.0 / 60.0), (10.0, 2.0 + 4.0 / 60.0), (100.0, 2.0 + 4.0 / 60.0)],
)
def test_a_slot_is_worth_the_value_down_to_which_the_next_ones_are_filled(
    budget, crawls_per_second
):
    """In 60 s by the 4/√x pages that are worth at least x now; where all that is ripe is less than
    the budget, also by the 2/√x crawls a second that come to be worth it."""
    both = curves(curve(0, root(1.0), root(1.0)), curve(1, root(1.0), root(3.0)))
    value = slot_value(both, budget, 60.0, NO_LIMITS)
    assert value == pytest.approx((crawls_per_second / budget) ** 2, rel=0.03)


def test_a_slot_is_worth_nothing_where_the_budget_is_more_than_anything_asks_for():
    idle = curves(curve(0, lambda x: 0.0), curve(1, lambda x: 0.0))
    assert slot_value(idle, 10.0, 60.0, NO_LIMITS) == 0.0
    both = curves(curve(0, root(1.0), root(1.0)), curve(1, root(1.0), root(3.0)))
    assert slot_value(both, 0.0, 60.0, NO_LIMITS) == GRID[-1]
    # One shard that cannot use what it has ripe leaves the slots to what is worth less.
    limits = np.array([0.0, np.inf])
    assert slot_value(both, 3.0, 60.0, limits) < slot_value(both, 3.0, 60.0, NO_LIMITS)


def test_no_budget_means_that_nothing_is_worth_a_crawl():
    assert solve_threshold(curves(curve(0, root(1.0))), 0.0) == GRID[-1]


def test_more_budget_than_hosts_allow_means_that_everything_is():
    capped = curves(curve(0, lambda x: min(2.0, 1 / x)))
    assert solve_threshold(capped, 5.0) == 0.0


def test_without_a_backlog_shares_follow_demand_at_the_threshold():
    both = curves(curve(0, root(1.0)), curve(1, root(3.0)))
    assert shares_of(both, 10.0, 60.0) == pytest.approx({0: 0.25, 1: 0.75})


def test_a_backlog_gets_budget_that_its_long_run_demand_would_not():
    def backlog(x):
        return 10_000.0 if x < 1.0 else 0.0

    shares = shares_of(curves(curve(0, root(1.0)), curve(1, root(1.0), backlog)), 10.0, 60.0)
    assert shares[1] > 0.9


def test_budget_goes_where_the_value_is_highest_not_where_the_backlog_is_longest():
    low = curve(0, lambda _x: 0.0, lambda x: 1e6 if x < 0.01 else 0.0)
    high = curve(1, lambda _x: 0.0, lambda x: 1e4 if x < 1.0 else 0.0)
    assert shares_of(curves(low, high), 10.0, 60.0)[1] == pytest.approx(1.0, abs=0.01)


def test_new_pages_count_at_every_threshold():
    new = curve(0, lambda _x: 0.0, lambda _x: 5000.0)
    assert shares_of(curves(new, curve(1, root(1.0))), 10.0, 60.0)[0] > 0.95


def test_where_nobody_demands_anything_pages_count_and_without_pages_nothing():
    idle = curves(curve(0, lambda _x: 0.0, pages=100), curve(1, lambda _x: 0.0, pages=300))
    assert shares_of(idle, 10.0, 60.0) == {0: 0.25, 1: 0.75}
    empty = curves(curve(0, lambda _x: 0.0, pages=0), curve(1, lambda _x: 0.0, pages=0))
    assert shares_of(empty, 10.0, 60.0) == {0: 0.0, 1: 0.0}


def test_a_shard_without_pages_gets_nothing_whatever_it_says():
    assert shares_of(curves(curve(0, root(5.0), pages=0), curve(1, root(1.0))), 1.0, 60.0) == {
        0: 0.0,
        1: 1.0,
    }


rows = st.lists(st.floats(0, 1e6), min_size=5, max_size=5).map(lambda r: sorted(r, reverse=True))


@settings(max_examples=200, deadline=None)
@given(
    demands=st.lists(rows, min_size=1, max_size=6),
    ripe=rows,
    budget=st.floats(0, 1e9),
    horizon=st.floats(0.1, 1e7),
)
def test_shares_of_any_reports_add_up_to_one(demands, ripe, budget, horizon):
    grid = [0.01, 0.1, 1.0, 10.0, 100.0]
    reports = {
        shard: curve(shard, dict(zip(grid, row, strict=True)).get, None, 10, grid)
        for shard, row in enumerate(demands)
    }
    reports[0] = curve(0, lambda _x: 1.0, dict(zip(grid, ripe, strict=True)).get, 10, grid)
    gathered = gather(reports)
    shares = shares_of(gathered, budget, horizon)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) >= 0
    threshold = solve_threshold(gathered, budget)
    assert np.isfinite(threshold)
    assert threshold >= 0


@settings(max_examples=100, deadline=None)
@given(
    row=st.lists(st.just(0.0) | st.floats(1e-6, 1e3), min_size=3, max_size=12),
    budget=st.floats(0.001, 1e3),
)
def test_the_threshold_is_the_policys(row, budget):
    demand = sorted(row, reverse=True)
    grid = [10.0 ** (k / 8) for k in range(len(demand))]
    gathered = curves(curve(0, dict(zip(grid, demand, strict=True)).get, grid=grid))
    expected = solve_multiplier(np.array(grid), np.array(demand), budget)
    assert solve_threshold(gathered, budget) == pytest.approx(expected, rel=1e-9)


def test_the_quick_way_onto_a_common_grid_is_the_interpolation():
    narrow = curve(1, lambda x: 3 / x**0.3 + 1, lambda x: 50 / (x + 0.1), grid=GRID[7:30])
    others = curve(0, root(1.0), grid=GRID)
    gathered = curves(others, narrow)
    own = np.array(GRID[7:30])
    for row, values in ((gathered.demand[1], narrow.demand), (gathered.ripe[1], narrow.ripe)):
        expected = interpolate_demand(own, np.array(values), np.array(GRID))
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_what_a_shard_cannot_use_is_the_others_and_does_not_raise_the_threshold():
    both = curves(curve(0, root(1.0)), curve(1, root(3.0)))
    limits = limits_of(both, {1: 2.5})
    assert list(limits) == [np.inf, 2.5]
    # 1/√λ + 2.5 = 10
    assert solve_threshold(both, 10.0, limits) == pytest.approx(1 / 7.5**2, rel=1e-3)
    assert shares_of(both, 10.0, 60.0, limits) == pytest.approx({0: 0.75, 1: 0.25}, rel=1e-3)
    assert shares_of(both, 10.0, 60.0, limits_of(both, {1: 9.0}))[1] == pytest.approx(0.75)


def test_budget_that_nobody_asks_for_goes_to_those_who_can_use_it():
    idle = curves(curve(0, lambda _x: 1.0), curve(1, lambda _x: 1.0), curve(2, lambda _x: 0.0))
    shares = shares_of(idle, 100.0, 60.0, limits_of(idle, {0: 10.0, 1: 20.0}))
    assert shares == pytest.approx({0: 0.1, 1: 0.2, 2: 0.7})
    full = limits_of(idle, {0: 10.0, 1: 20.0, 2: 30.0})
    assert shares_of(idle, 100.0, 60.0, full) == pytest.approx({0: 1 / 6, 1: 1 / 3, 2: 1 / 2})
    nothing = limits_of(idle, dict.fromkeys(range(3), 0.0))
    assert sum(shares_of(idle, 100.0, 60.0, nothing).values()) == pytest.approx(1.0)


@settings(max_examples=200, deadline=None)
@given(
    demands=st.lists(rows, min_size=1, max_size=6),
    limits=st.lists(st.floats(0, 1e6), min_size=6, max_size=6),
    budget=st.floats(0.01, 1e6),
)
def test_no_shard_gets_more_than_it_can_use_while_another_could(demands, limits, budget):
    grid = [0.01, 0.1, 1.0, 10.0, 100.0]
    gathered = gather(
        {
            n: curve(n, dict(zip(grid, row, strict=True)).get, None, 10, grid)
            for n, row in enumerate(demands)
        }
    )
    of = limits_of(gathered, dict(enumerate(limits)))
    shares = shares_of(gathered, budget, 10.0, of)
    assert sum(shares.values()) == pytest.approx(1.0)
    if of.sum() > 1.02 * budget:
        assert all(share * budget <= of[n] * 1.02 + 1e-6 for n, share in shares.items())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"thresholds": [1.0], "demand": [1.0], "ripe": [1.0]}, "2 or more"),
        ({"thresholds": [1.0, 2.0], "demand": [1.0], "ripe": [1.0, 1.0]}, "as many"),
        ({"thresholds": [2.0, 1.0], "demand": [1.0, 1.0], "ripe": [1.0, 1.0]}, "rise"),
        ({"thresholds": [0.0, 1.0], "demand": [1.0, 1.0], "ripe": [1.0, 1.0]}, "positive"),
    ],
)
def test_a_curve_that_cannot_be_added_is_refused(changes, reason):
    made = curve(0, root(1.0))
    for name, value in changes.items():
        made = DemandCurve(
            **({f: getattr(made, f) for f in made.__struct_fields__} | {name: value})
        )
    with pytest.raises(ValueError, match=reason):
        check_curve(made)


def test_while_more_is_ripe_than_can_be_crawled_long_run_demand_does_not_count():
    """Two shards of the same stock; one would want more in the long run, but not now."""
    stock = root(100.0)
    both = curves(curve(0, root(1.0), stock), curve(1, root(50.0), stock))
    assert shares_of(both, budget=10.0, relaxation_seconds=5.0)[0] == pytest.approx(0.5)


def test_a_slot_is_worth_less_than_in_the_long_run_while_less_is_ripe():
    run = Run()
    run.set_bandwidth(2.0)
    ripe = [0.4 * relaxation(2.0, 5.0) / x**0.5 for x in RUN_GRID]
    run.hear(report(0, 4.0, ripe=ripe))
    message = run.step()
    assert message.multiplier == pytest.approx(4.0, rel=1e-6)
    assert run.core.slot_value == pytest.approx(0.04, rel=0.02)


@pytest.mark.parametrize("least", [1e-200, 1e-310, 5e-324])
def test_demand_that_falls_to_next_to_nothing_is_solved_all_the_same(least):
    # As that of pages which many signals in a row would make worth a crawl.
    both = curves(
        curve(0, lambda x: 1e12 if x < GRID[1] else least, grid=GRID[:9]),
        curve(1, lambda x: least, grid=GRID),
    )
    for budget in (1e-3, 1e5):
        found = solve_threshold(both, budget)
        assert GRID[0] <= found <= GRID[1]
        assert sum(solve_slots(both, budget, 5.0).shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("budget", np.linspace(6.0, 9.9, 14))
def test_the_threshold_is_exact_where_a_limit_begins_to_bind_between_two_points(budget):
    both = curves(curve(0, root(1.0)), curve(1, root(3.0)))
    limits = limits_of(both, {0: 2.5, 1: 7.5})
    # Both bind at once, at 1/√λ = 2.5.
    assert solve_threshold(both, budget, limits) == pytest.approx((4.0 / budget) ** 2, rel=1e-3)
