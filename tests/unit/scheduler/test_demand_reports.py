"""Demand curves: what they say of the pages, and that those of shards can be added."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules

from services.scheduler.demand import (
    POINTS,
    POINTS_PER_DECADE,
    DemandReporter,
    demand_of,
    draw_sample,
    grid,
)
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


def test_the_curve_is_the_policy_librarys():
    world = world_of(np.random.default_rng(1), host_rate=1.0 / DAY)
    shard = world.shard
    demand = demand_of(draw_sample(shard, 10_000), 0.1)
    rows = shard.pages[: shard.used]
    pages = PageParameters(*(rows[n].copy() for n in ("importance", "alpha", "kappa", "gamma")))
    limits = np.ones(shard.host_count)
    expected = demand_curve(pages, rows["host"].copy(), limits, demand.thresholds)
    assert demand.limited * DAY == pytest.approx(expected, rel=1e-9)
    unlimited = demand_curve(pages, None, None, demand.thresholds)
    assert demand.unlimited * DAY == pytest.approx(unlimited, rel=1e-5)
    assert demand.limited_share(0.0) > 0.5
    assert demand.limited_share(1e9) == 0.0


def test_a_sample_stands_for_all():
    world = world_of(np.random.default_rng(2), pages=3000, host_rate=1000.0)
    whole = demand_of(draw_sample(world.shard, 10_000), 0.1)
    part = demand_of(draw_sample(world.shard, 1000), 0.1)
    middle = (whole.limited > 0.2 * whole.limited[0]) & (whole.thresholds > part.thresholds[0])
    at = np.interp(np.log(whole.thresholds), np.log(part.thresholds), part.limited)
    assert at[middle] == pytest.approx(whole.limited[middle], rel=0.15)


def test_a_maximum_age_is_a_floor():
    world = world_of(np.random.default_rng(3), max_age_days=2.0)
    demand = demand_of(draw_sample(world.shard, 10_000), 0.1)
    assert demand.limited[-1] * DAY == pytest.approx(200.0)


def test_uniform_demand_is_one_crawl_a_page_and_age():
    world = world_of(np.random.default_rng(3), uniform=True, host_rate=1e6)
    demand = demand_of(draw_sample(world.shard, 10_000), 5.0)
    assert demand.limited * DAY == pytest.approx(400.0 / demand.thresholds)
    assert demand.thresholds[0] < 5.0 < demand.thresholds[-1]


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


def test_a_report_counts_what_is_ripe_and_what_was_crawled():
    world = world_of(np.random.default_rng(4), pages=100)
    shard = world.shard
    for number in range(5):
        world.add_page("fresh", number, NOW)
    shard.filled_until = NOW
    reporter = DemandReporter(shard, "me", AGES)
    assert reporter.report(NOW, 0.1) is None
    assert reporter.is_stale(0.1)
    reporter.set_demand(demand_of(draw_sample(shard, 1000), 0.1))
    assert not reporter.is_stale(0.1)
    picks = shard.selector.select(NOW + np.arange(1, 9) / 10, 10.0, 0.0)
    shard.note_crawls(picks)
    report = reporter.report(NOW + 2.0, 0.1)
    assert (report.shard, report.instance, report.pages) == (0, "me", 105)
    assert report.achieved_crawls_per_second == 4.0
    by_value = picks["value"][picks["tier"] == 0]
    assert report.marginal_value == by_value.min()
    ripe = np.array(report.ripe)
    assert np.all(np.diff(ripe) <= 0)
    priorities = shard.selector.weigh_all(NOW + 2.0)
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
    reporter.set_demand(demand_of(draw_sample(shard, 10), 0.0))
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
    shard.pause_host(int(blocked), NOW + 3600.0)
    shard.filled_until = NOW
    reporter = DemandReporter(shard, "me", 20.0)
    reporter.set_demand(demand_of(draw_sample(shard, 1000), 0.1))
    shard.selector.select(NOW + np.array([0.1]), 1.0, 0.0)
    assert reporter.report(NOW, 0.1).ripe[0] == 1 + 20 * 0.5  # one of two tokens is spent
