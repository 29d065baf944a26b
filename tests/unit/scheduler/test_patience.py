"""The demand of a shard is computed anew when it may be another, and not for each thing learned."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules

from services.scheduler.demand.patience import Patience, movement
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.state.changes import Changes

NOW = 1.7e9
PAGES = 400
MULTIPLIER = 0.5


@pytest.fixture
def world():
    rng = np.random.default_rng(3)
    made = World(rules())
    for number in range(PAGES):
        alpha, importance = float(rng.lognormal(-2, 1)), float(rng.lognormal())
        added, crawled = NOW - 9 * DAY, NOW - 5 * DAY
        name = f"h{number % 7}"
        made.add_page(
            name, number, added, importance=importance, alpha=alpha, last_crawled_at=crawled
        )
    return made


def learn(world, count, factor):
    """So many pages are found to change so many times as often."""
    for identity in world.identities[:count]:
        page = world.shard.pages[world.shard.row_of(identity.page_id)]
        world.shard.parameters(
            np.array([identity.page_id], np.int64),
            np.array([float(page["alpha"]) * factor]),
            np.array([0.0]),
            np.array([0.0]),
        )


def renewed(reporter, world):
    """The demand is computed anew, and reported from then on."""
    demand = demand_of(world.shard, MULTIPLIER)
    reporter.set_demand(demand, movement(reporter.demand, demand, MULTIPLIER))


def reporter_of(world):
    reporter = DemandReporter(world.shard, "me", 1e12)
    reporter.set_demand(demand_of(world.shard, MULTIPLIER))
    return reporter


def test_ever_more_may_be_learned_while_the_curve_stays(world):
    reporter, passes = reporter_of(world), 0
    for _ in range(200):
        learn(world, 5, 1.0)
        if reporter.is_stale(MULTIPLIER):
            passes += 1
            renewed(reporter, world)
    # Five, ten, twenty, ... pages, and then as often as something was learned of each on average.
    assert passes <= 9
    learn(world, PAGES + 5, 1.0)
    assert reporter.is_stale(MULTIPLIER)


def test_where_the_curve_moves_it_is_computed_anew_for_a_hundredth_of_the_pages(world):
    reporter = reporter_of(world)
    for _ in range(8):
        learn(world, 50, 1.0)
        renewed(reporter, world)
    learn(world, 5, 1.0)
    assert not reporter.is_stale(MULTIPLIER)
    before = reporter.demand
    learn(world, PAGES, 0.9)
    renewed(reporter, world)
    assert 0.01 < movement(before, reporter.demand, MULTIPLIER) < 1.0
    learn(world, 5, 1.0)
    assert reporter.is_stale(MULTIPLIER)


def test_what_is_told_is_never_waited_for(world):
    """Pages that an import brings, in a shard whose demand stayed the same for hours."""
    reporter = reporter_of(world)
    for _ in range(8):
        learn(world, 200, 1.0)
        renewed(reporter, world)
    for number in range(5):
        world.add_page("late", number, NOW)
    assert reporter.is_stale(MULTIPLIER)


def test_after_a_while_what_little_was_learned_counts(world):
    reporter = reporter_of(world)
    assert not reporter.is_dated(1e9)
    learn(world, 1, 1.0)
    assert not reporter.is_stale(MULTIPLIER)
    assert not reporter.is_dated(19.0)
    assert reporter.is_dated(21.0)
    learn(world, 50, 1.0)
    renewed(reporter, world)
    learn(world, 1, 1.0)
    assert not reporter.is_dated(59.0)
    assert reporter.is_dated(61.0)


def test_a_movement_is_that_around_the_multiplier(world):
    before = demand_of(world.shard, MULTIPLIER)
    assert movement(before, before, MULTIPLIER) == 0.0
    by_host = before.sums.by_host.copy()
    by_host[:, before.thresholds < MULTIPLIER / 11.0] *= 3.0
    far_off = before._replace(sums=before.sums._replace(by_host=by_host))
    assert movement(before, far_off, MULTIPLIER) == 0.0
    assert movement(before, far_off, 0.0) > 0.0
    sums = before.sums
    twice = before._replace(sums=sums._replace(by_host=sums.by_host * 2.0))
    assert movement(before, twice, MULTIPLIER) == pytest.approx(1.0)
    assert movement(twice, before, MULTIPLIER) == pytest.approx(0.5)
    elsewhere = before._replace(sums=sums._replace(thresholds=sums.thresholds * 1e6))
    assert movement(before, elsewhere, MULTIPLIER) == np.inf


def test_grids_that_were_moved_are_compared_where_they_are_the_same(world):
    """Whether the few points at their ends are there says nothing of the pages."""
    before = demand_of(world.shard, MULTIPLIER)
    points, sums = before.thresholds, before.sums
    late, early = points[12:], points[:-12]
    narrower = sums._replace(thresholds=late, others=sums.others[12:], by_host=sums.by_host[:, 12:])
    others = sums._replace(
        thresholds=early, others=sums.others[:-12], by_host=sums.by_host[:, :-12]
    )
    before, after = before._replace(sums=others), before._replace(sums=narrower)
    assert late[0] < MULTIPLIER < early[-1]
    assert movement(before, after, MULTIPLIER) == movement(before, after, 0.0) == 0.0
    assert movement(before, after, late[0] * 0.9) == np.inf
    assert movement(before, after, early[-1] * 1.1) == np.inf


def test_few_pages_above_the_multiplier_say_little(world):
    """Of what one page in hundreds asks for a third more is not a third."""
    before = demand_of(world.shard, MULTIPLIER)
    above = before.thresholds > 5.0 * MULTIPLIER
    by_host = before.sums.by_host.copy()
    by_host[:, above] *= 1.3
    after = before._replace(sums=before.sums._replace(by_host=by_host))
    assert 0.0 < movement(before, after, MULTIPLIER) < 0.1


def test_a_demand_that_was_nothing_moves_without_bounds():
    shard = World(rules()).shard
    nothing = demand_of(shard, 0.0)
    assert movement(nothing, nothing, 0.0) == 0.0
    sums = nothing.sums
    something = nothing._replace(sums=sums._replace(others=sums.others + 1.0))
    assert movement(nothing, something, 0.0) == np.inf


def test_no_pages_at_all_are_no_reason_to_fail():
    patience = Patience()
    patience.note(0, 0, 0.0)
    assert not patience.is_over(0, Changes())
    assert patience.is_over(0, Changes(told=1))
