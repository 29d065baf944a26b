"""A fleet that is slower than the budget: what the coordinator makes of it, and tells people."""

import pytest
from coordination_run import GRID, Run, report

from services.cli.commands.status import _fleet
from services.coordinator.picture import Picture


class BehindRun(Run):
    """The crawlers answer so much less than they are given, and the rest of the slots wait."""

    answered_share = 1.0
    demand = None
    """That all shards report; None: as ever."""

    def report(self, shard, scale, since):
        slots = self.core.timeline.allotted(shard, since, self.moment.clock)
        rate = slots / max(self.moment.clock - since, 1e-9)
        answered = self.answered_share * rate
        return report(
            shard,
            scale,
            self.moment.clock,
            achieved_crawls_per_second=answered,
            answered_crawls_per_second=answered,
            held_crawls_per_second=rate - answered,
            **({} if self.demand is None else {"demand": self.demand}),
        )


@pytest.fixture
def run():
    made = BehindRun()
    made.reporting = {0: 100.0, 1: 300.0}
    made.set_bandwidth(400.0)
    for _ in range(10):
        made.step()
    return made


def state_of(run):
    return Picture(run.core).state(run.moment, 0.0, "one")


def test_a_fleet_that_keeps_up_has_no_capacity_that_anybody_knows(run):
    state = state_of(run)
    assert (state.now.fleet_held, state.now.fleet_capacity, state.notice) == (0.0, None, None)
    assert _fleet({"live_shards": 1}, {"fleet_capacity": None}) == "answers all that it is asked"


def test_the_threshold_is_that_of_what_the_fleet_can_do_and_no_shard_is_blamed(run):
    run.answered_share = 0.5
    for _ in range(40):
        run.step()
    assert not any(m.cause == "shortfall" for m in run.published)
    assert run.shares() == {0: 0.25, 1: 0.75}
    # Σ D = 400/√λ = 200
    assert run.published[-1].multiplier == pytest.approx(4.0, rel=0.03)
    assert run.published[-1].crawls_per_second == 400.0


def test_people_are_told_what_the_fleet_can_do(run):
    run.answered_share = 0.25
    for _ in range(40):
        run.step()
    state = state_of(run)
    assert state.now.fleet_held == pytest.approx(0.75, abs=0.01)
    assert state.now.fleet_capacity == pytest.approx(100.0, rel=0.02)
    assert state.now.achieved_ratio == pytest.approx(0.25, abs=0.01)
    assert "the crawlers are behind" in state.notice
    text = _fleet({"live_shards": 1}, {"fleet_capacity": 100.0, "fleet_held": 0.75})
    assert text == "answers 100 crawls/s: 75.0% of the slots wait for it"


def test_a_fleet_that_has_caught_up_is_not_behind_any_more(run):
    run.answered_share = 0.25
    for _ in range(20):
        run.step()
    run.answered_share = 1.0
    for _ in range(60):
        run.step()
    assert state_of(run).now.fleet_capacity is None
    assert run.published[-1].multiplier == pytest.approx(1.0, rel=0.02)


class WaitingRun(Run):
    """Slots for which no page is worth the threshold are left empty (work-conserving: false)."""

    is_away = False
    worth = 1.0

    def report(self, shard, scale, since):
        slots = self.core.timeline.allotted(shard, since, self.moment.clock)
        rate = slots / max(self.moment.clock - since, 1e-9)
        plan = self.core.timeline.at(since)
        is_worth = plan is not None and plan.multiplier <= self.worth
        name = "held" if self.is_away else "achieved" if is_worth else "unused"
        said = {"achieved_crawls_per_second": 0.0, f"{name}_crawls_per_second": rate}
        return report(shard, scale, self.moment.clock, **said)


def test_a_fleet_that_was_away_altogether_does_not_leave_the_threshold_where_no_page_is():
    run = WaitingRun()
    run.reporting, run.worth = {0: 100.0, 1: 300.0}, 1.01
    run.set_bandwidth(400.0)
    for is_away, seconds in ((False, 10), (True, 130), (False, 60)):
        run.is_away = is_away
        for _ in range(seconds):
            run.step()
    assert run.published[-1].multiplier == pytest.approx(1.0, rel=0.02)
    assert state_of(run).now.achieved_ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("most", [0.01, 0.05, 1.0])
def test_a_fleet_may_be_away_for_as_long_as_it_likes(most):
    run = BehindRun()
    run.reporting, run.answered_share = {0: 100.0, 1: 300.0}, 1.0
    # No page is worth more than that: demand falls to nothing between two thresholds.
    run.demand = [100.0 * x**-0.5 if x < most else 0.0 for x in GRID]
    run.set_bandwidth(400.0)
    for is_away, seconds in ((False, 10), (True, 400), (False, 60)):
        run.answered_share = 0.0 if is_away else 1.0
        for _ in range(seconds):
            run.step()
    assert state_of(run).now.fleet_held == 0.0
