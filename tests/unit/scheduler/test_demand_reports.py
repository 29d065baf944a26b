"""Demand curves: what they say of the pages, and that those of shards can be added."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference_shard import DAY, World, rules

from services.scheduler.demand.grids import POINTS, POINTS_PER_DECADE, grid, is_near_the_end
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import Estimate, Tally, demand_of
from services.scheduler.picking.priority import BY_VALUE
from services.scheduler.state.groups import CrawlRates
from shared.policy.demand import demand_curve
from shared.policy.model import PageParameters

AGES = 1e12
"""A horizon in which any host can take all its pages."""

NOW = 1.7e9


def world_of(rng, pages=400, **settings):
    world = World(rules(**settings))
    for number in range(pages):
        signalled = rng.random() < 0.4
        world.add_page(
            f"h{number % 10}",
            number,
            NOW - DAY,
            importance=float(rng.lognormal()),
            alpha=float(rng.lognormal(-2, 1)),
            kappa=float(rng.lognormal()) if signalled else 0.0,
            gamma=float(rng.lognormal(-1, 1)) if signalled else 0.0,
            last_crawled_at=NOW - 5 * DAY,
        )
    return world


def rates_of(shard):
    return shard.crawl_rates()


def by_tables(shard, multiplier=0.1, size=150):
    return demand_of(shard, multiplier, few_pages=0, size=size)


def test_the_curve_is_the_policy_librarys():
    world = world_of(np.random.default_rng(1), host_rate=1.0 / DAY)
    shard = world.shard
    demand = demand_of(shard, 0.1)
    rows = shard.pages[: shard.used]
    pages = PageParameters(
        *(rows[n].astype(float) for n in ("importance", "alpha", "kappa", "gamma"))
    )
    expected = demand_curve(pages, rows["host"].copy(), np.ones(10), demand.thresholds)
    assert demand.limited(rates_of(shard)) * DAY == pytest.approx(expected, rel=1e-9)
    unlimited = demand_curve(pages, None, None, demand.thresholds)
    assert demand.unlimited() * DAY == pytest.approx(unlimited, rel=1e-5)


def test_tables_are_as_good_as_the_inverse_and_slices_as_the_whole():
    world = world_of(np.random.default_rng(2), pages=4000, host_rate=5.0 / DAY)
    shard = world.shard
    exact = demand_of(shard, 0.1, few_pages=4000)
    whole, sliced = by_tables(shard, size=10**6), by_tables(shard)
    assert np.array_equal(whole.thresholds, exact.thresholds)
    assert np.array_equal(sliced.thresholds, exact.thresholds)
    wanted = exact.unlimited()
    likely = wanted > 1e-3 * wanted[0]
    assert whole.unlimited()[likely] == pytest.approx(wanted[likely], rel=3e-3)
    cut = exact.limited(rates_of(shard))
    assert cut[0] == pytest.approx(50.0 / DAY)
    assert (cut < 0.99 * wanted).sum() > 10
    assert whole.limited(rates_of(shard))[likely] == pytest.approx(cut[likely], rel=3e-3)
    assert sliced.unlimited() == pytest.approx(whole.unlimited(), rel=1e-12)
    assert sliced.limited(rates_of(shard)) == pytest.approx(
        whole.limited(rates_of(shard)), rel=1e-12
    )


def test_of_very_few_pages_each_is_asked_by_itself_and_of_more_the_tables():
    """A shard of 20,000 pages took 25 times as much of a processor without them."""
    few, more = (world_of(np.random.default_rng(2), pages=pages).shard for pages in (500, 2500))
    exact = demand_of(few, 0.1, few_pages=500).unlimited()
    assert np.array_equal(demand_of(few, 0.1).unlimited(), exact)
    assert np.array_equal(demand_of(more, 0.1).unlimited(), by_tables(more, size=2500).unlimited())


@pytest.mark.parametrize("compute", [lambda shard: demand_of(shard, 0.1), by_tables])
def test_a_maximum_age_is_a_floor(compute):
    world = world_of(np.random.default_rng(3), max_age_days=2.0)
    limits = rates_of(world.shard)
    demand = compute(world.shard)
    assert demand.limited(limits)[-1] * DAY == pytest.approx(200.0)
    assert demand.limited(limits)[0] > demand.limited(limits)[-1]
    assert demand.limited(CrawlRates.of_hosts(np.full(10, 4.0 / DAY))) * DAY == pytest.approx(40.0)


@pytest.mark.parametrize("few_pages", [0, 50_000])
def test_no_page_asks_for_more_than_the_least_interval_lets_it(few_pages):
    world = world_of(np.random.default_rng(3), least_interval=2.0 * DAY, host_rate=1e6)
    demand = demand_of(world.shard, 0.0, few_pages=few_pages)
    free = demand_of(
        world_of(np.random.default_rng(3), host_rate=1e6).shard, 0.0, few_pages=few_pages
    )
    assert demand.unlimited()[0] * DAY == pytest.approx(200.0, rel=0.05)
    assert (demand.unlimited() <= free.unlimited()).all()
    assert free.unlimited()[0] * DAY > 1000.0


def test_below_the_floor_nothing_more_is_asked_for():
    free = demand_of(world_of(np.random.default_rng(3)).shard, 0.0)
    floor = float(free.thresholds[20]) * 1.01
    demand = demand_of(world_of(np.random.default_rng(3), least_value=floor).shard, 0.0)
    assert demand.unlimited()[20:] == pytest.approx(free.unlimited()[20:])
    assert demand.unlimited()[:20] == pytest.approx(demand.unlimited()[20])


@pytest.mark.parametrize("few_pages", [0, 50_000])
def test_uniform_demand_is_one_crawl_a_page_and_age(few_pages):
    world = world_of(np.random.default_rng(3), uniform=True, host_rate=1e6)
    demand = demand_of(world.shard, 5.0, few_pages=few_pages)
    limited = demand.limited(rates_of(world.shard))
    assert limited * DAY == pytest.approx(400.0 / demand.thresholds)
    assert demand.thresholds[0] < 5.0 < demand.thresholds[-1]


def test_a_changed_limit_shows_in_sums_that_are_there():
    shard = world_of(np.random.default_rng(5), pages=2000, host_rate=1.0 / DAY).shard
    demand = by_tables(shard)
    before = demand.limited(rates_of(shard))
    shard.limit_host("h3.example", 1e3, None, NOW)
    number = shard.hosts.find("h3.example")
    after = demand.limited(rates_of(shard))
    own = demand.sums.by_host[demand.hosts.tolist().index(number)]
    assert own[0] > 50.0
    assert (after - before) * DAY == pytest.approx(own - np.minimum(own, 1.0), rel=1e-6, abs=1e-9)
    assert not demand.misses(rates_of(shard))


def test_pages_that_change_between_slices_count_as_they_were_copied():
    world = world_of(np.random.default_rng(6), pages=400, uniform=True, host_rate=1e6)
    shard = world.shard
    tally = Tally(shard, 5.0, None, few_pages=0, size=100)
    tally.add(tally.copy())
    for identity in (*world.identities[:10], *world.identities[350:365]):
        shard.remove(identity.page_id, NOW)
    for number in range(40):
        world.add_page("late", number, NOW)
    while (rows := tally.copy()) is not None:
        tally.add(rows)
    # The first ten were counted before they went; the new host came after the pass had begun.
    demand = tally.finish()
    counted = demand.unlimited() * DAY * demand.thresholds
    assert counted == pytest.approx(400 - 15 + 40)
    again = demand_of(shard, 5.0, few_pages=0)
    assert again.unlimited() * DAY * again.thresholds == pytest.approx(400 - 25 + 40)
    assert demand.changes.told < shard.changes.told == again.changes.told


def test_hosts_that_cannot_bind_are_summed_together():
    """A host within its limit by far needs no sum of its own; one whose limit falls is missed."""
    world = World(rules(host_rate=1.0))
    for number in range(1500):
        world.add_page(f"h{number}", 0, NOW - DAY, importance=1.0 + number, alpha=0.1)
    world.limit_host("h7.example", 1e-9, None, NOW)
    shard = world.shard
    first = by_tables(shard, size=10**6)
    second = Tally(shard, 0.1, first, few_pages=0)
    second.add(second.copy())
    demand = second.finish()
    assert first.hosts.size == 1500
    assert 1024 <= demand.hosts.size < 1100
    assert shard.hosts.find("h7.example") in demand.hosts
    limits = rates_of(shard)
    assert demand.limited(limits) == pytest.approx(first.limited(limits))
    assert not demand.misses(limits)
    world.limit_host("h9.example", 1e-9, None, NOW)
    assert demand.misses(rates_of(shard))
    reporter = DemandReporter(shard, "me", AGES)
    reporter.set_demand(demand)
    reporter.report(NOW, 0.1)
    assert reporter.is_stale(0.1)


def test_a_first_pass_that_guessed_the_grid_wrong_does_not_stand():
    world = world_of(np.random.default_rng(8), pages=300)
    world.add_page("late", 1, NOW - DAY, importance=1e9, alpha=0.01)
    tally = Tally(world.shard, 0.0, None, few_pages=0, size=100)
    while (rows := tally.copy()) is not None:
        tally.add(rows)
    assert not tally.is_sound(tally.finish())
    assert by_tables(world.shard, 0.0).thresholds[-1] >= 1e11 * (1 - 1e-6)


def test_grids_of_all_shards_fall_on_the_same_points():
    for highest, multiplier in ((3.7e4, 0.0), (1e-3, 1e-5), (8e9, 2e-4), (0.0, 0.0), (1.0, 50.0)):
        points = grid(highest, multiplier)
        assert points.size == POINTS
        steps = np.log10(points) * POINTS_PER_DECADE
        assert steps == pytest.approx(np.round(steps), abs=1e-9)
        if multiplier and multiplier < highest:
            assert points[0] < multiplier < points[-1]
        elif highest:
            assert points[-1] >= highest


def test_points_are_the_powers_nearest_to_them_on_every_machine():
    """Processors' own powers differ in the last bit, and two such points were two thresholds."""
    for highest in (1e-9, 1.0, 3.7e4, 1e12):
        for point in grid(highest, 0.0).tolist():
            step = round(math.log10(point) * POINTS_PER_DECADE)
            with localcontext(prec=60):
                exact = Decimal(10) ** (Decimal(step) / POINTS_PER_DECADE)
            assert abs(Decimal(point) / exact - 1) < Decimal("2.3e-16")
    assert {"1.333521432163324e-05", "0.001", "7.498942093324558"} <= set(
        map(repr, grid(9.9, 0.0).tolist())
    )


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-9, 1e12), st.floats(1e-15, 1e9))
@example(1e4, 0.26)
@example(1e4, 10.0 ** (3 / 8))
def test_a_grid_that_was_just_made_does_not_end_too_near(highest, multiplier):
    """Else the demand would be computed anew for ever: λ₀ was taken for near by one rule, and for
    far enough by another."""
    points = grid(highest, multiplier)
    assert not is_near_the_end(points, multiplier)
    assert is_near_the_end(points, points[0])


def test_a_shard_that_is_loaded_again_begins_a_new_run_of_reports():
    world = world_of(np.random.default_rng(4), pages=10)
    told = []
    for _ in range(2):
        reporter = DemandReporter(world.shard, "me", AGES)
        reporter.set_demand(by_tables(world.shard, 0.1))
        told += [reporter.report(NOW, 0.1), reporter.report(NOW + 1.0, 0.1)]
    assert [report.sequence for report in told] == [1, 2, 1, 2]
    assert told[0].run == told[1].run != told[2].run == told[3].run
    assert {report.instance for report in told} == {"me"}


def test_a_report_counts_what_is_ripe_and_what_was_crawled():
    world = world_of(np.random.default_rng(4), pages=100)
    shard = world.shard
    for number in range(5):
        world.add_page("fresh", number, NOW)
    shard.filled_until = NOW
    reporter = DemandReporter(shard, "me", AGES)
    assert reporter.report(NOW, 0.1) is None
    assert reporter.is_stale(0.1)
    reporter.set_demand(demand_of(shard, 0.1))
    assert not reporter.is_stale(0.1)
    picks = shard.selector.select(NOW + np.arange(1, 9) / 10, 10.0, 0.0)
    by_value = picks["value"][picks["tier"] == BY_VALUE]
    shard.notes.note_crawls(np.bincount(picks["tier"], minlength=5), float(by_value.min()))
    report = reporter.report(NOW + 2.0, 0.1)
    assert (report.shard, report.instance, report.pages) == (0, "me", 105)
    assert report.achieved_crawls_per_second == 4.0
    assert report.marginal_value == by_value.min()
    ripe = np.array(report.ripe)
    assert np.all(np.diff(ripe) <= 0)
    priorities = shard.selector.weigh(NOW + 2.0, 0.0, shard.used).priorities
    assert ripe[-1] == (priorities > 1e50).sum() > 0
    for threshold, count in zip(report.thresholds, report.ripe, strict=True):
        assert count == (priorities >= threshold).sum()
    assert reporter.is_stale(report.thresholds[3])
    later = reporter.report(NOW + 3.0, 0.1)
    assert later.achieved_crawls_per_second == 0.0
    assert later.marginal_value == report.marginal_value


def test_a_report_of_an_empty_shard_is_all_zero():
    shard = World(rules()).shard
    reporter = DemandReporter(shard, "me", AGES)
    reporter.set_demand(demand_of(shard, 0.0))
    report = reporter.report(NOW, 0.0)
    assert report.demand == [0.0] * POINTS
    assert report.ripe == [0] * POINTS
    assert report.host_limited_share == 0.0


def test_of_a_host_no_more_pages_are_ripe_than_it_can_take():
    """Else the pages of a blocked host would draw a budget that its shard spends on lesser ones."""
    world = World(rules(host_rate=0.5))
    for number in range(30):
        world.add_page("slow", number, NOW)
        world.add_page("blocked", number, NOW)
    shard = world.shard
    blocked = shard.pages[1]["host"]
    shard.pause_host(int(blocked), NOW + 3600.0, NOW)
    shard.filled_until = NOW
    reporter = DemandReporter(shard, "me", 20.0)
    reporter.set_demand(demand_of(shard, 0.1))
    shard.selector.select(NOW + np.array([0.1]), 1.0, 0.0)
    assert reporter.report(NOW, 0.1).ripe[0] == 1 + 20 * 0.5  # one of two tokens is spent


def test_an_estimate_by_the_first_pages_is_about_what_all_ask_for():
    world = world_of(np.random.default_rng(7), pages=6000, host_rate=1e3)
    estimate, whole = Estimate(world.shard, 0.1, sample=2000).finish(), by_tables(world.shard)
    middle = np.searchsorted(whole.thresholds, [0.003, 0.01, 0.03, 0.1])
    there = np.searchsorted(estimate.thresholds, whole.thresholds[middle])
    assert estimate.unlimited()[there] == pytest.approx(whole.unlimited()[middle], rel=0.2)
    limits = rates_of(world.shard)
    assert estimate.limited(limits)[there] == pytest.approx(estimate.unlimited()[there])


def test_an_estimate_by_all_pages_is_what_they_ask_for():
    world = world_of(np.random.default_rng(8))
    estimate, whole = Estimate(world.shard, 0.1).finish(), demand_of(world.shard, 0.1)
    assert estimate.unlimited() == pytest.approx(whole.unlimited())


def test_the_estimate_of_no_pages_is_no_demand():
    assert not Estimate(World(rules()).shard, 0.1).finish().unlimited().any()
