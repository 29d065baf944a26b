"""What one shard says, however absurd, ends no coordinator and leaves the others what is theirs."""

import pytest
from coordination_run import GRID, Run, report

from services.coordinator.picture import Picture
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.messages import Multipliers
from shared.contracts.reported import ClassCrawls, ReasonCrawls

ENDS = {"demand": [2.0, 1.0], "ripe": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("absurd", "reason"),
    [
        ({"thresholds": [5e-324, 1e-300], **ENDS}, "so extreme"),
        ({"thresholds": [1.0, 1e300], **ENDS}, "so extreme"),
        (
            {name: [float(k) for k in range(2000, 0, -1)] for name in ("demand", "ripe")}
            | {"thresholds": [float(k) for k in range(1, 2001)]},
            "1000 at most",
        ),
        ({"achieved_crawls_per_second": 1e300}, "more than there can be"),
        ({"answered_crawls_per_second": 1e300}, "more than there can be"),
        ({"held_crawls_per_second": 1e300}, "more than there can be"),
        ({"unused_crawls_per_second": 1e300}, "more than there can be"),
        ({"reasons": [ReasonCrawls("new", 1e300)]}, "more than there can be"),
        ({"classes": [ClassCrawls("news", 1, 1e300)]}, "more than there can be"),
    ],
)
def test_numbers_that_nothing_can_be_made_of_are_refused(absurd, reason):
    run = Run()
    with pytest.raises(BadMessage, match=reason):
        run.hear(report(0, **absurd))
    assert run.core.fleet.shards == {}


@pytest.mark.parametrize("low", [[1e-100, 1e-99], [1e-50, 1e-10]])
@pytest.mark.parametrize("high", [[1e99, 1e100], [1e10, 1e20]])
def test_curves_that_lie_as_far_apart_as_may_be_make_multipliers_that_can_be_read(low, high):
    run = Run()
    run.set_bandwidth(2.0)
    for shard, thresholds in enumerate([low, high, GRID]):
        ends = {} if thresholds is GRID else ENDS
        run.hear(report(shard, thresholds=thresholds, **ends))
    message = decode(Multipliers, encode(run.step()))
    assert sum(a.share for a in message.allotments) == pytest.approx(1.0)


class BoastingRun(Run):
    """Shard 3 says that crawlers keep a billion slots a second waiting, or make as many crawls."""

    name = None

    def report(self, shard, scale, since):
        if shard != 3 or self.name is None:
            return super().report(shard, scale, since)
        return report(shard, scale, self.moment.clock, **{f"{self.name}_crawls_per_second": 1e9})


def boasting():
    run = BoastingRun()
    run.reporting = dict.fromkeys(range(4), 100.0)
    run.set_bandwidth(400.0)
    for _ in range(10):
        run.step()
    return run


def test_a_shard_that_says_that_all_slots_wait_does_not_bring_the_others_budget_to_nothing():
    run = boasting()
    assert run.published[-1].multiplier == pytest.approx(1.0, rel=1e-3)
    run.name = "held"
    for _ in range(10):
        run.step()
    # At the very most it has twice its quarter of the slots waiting, beside what the others make.
    state = Picture(run.core).state(run.moment, 0.0, "one")
    assert state.now.fleet_held <= 0.5 / 1.25 + 1e-9
    assert run.published[-1].multiplier < 4.0


def test_a_shard_that_boasts_of_its_crawls_does_not_hide_that_the_crawlers_are_behind():
    run = boasting()
    run.name = "achieved"
    for _ in range(20):
        run.step()
        for shard in range(3):
            run.core.fleet.shards[shard].usage.held_rate = 50.0
    assert run.core.fleet.crawlers(run.moment.wall).held_share > 0.2
