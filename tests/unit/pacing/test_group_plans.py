"""Plans say which limits of groups hold when."""

import pytest

from shared.contracts.messages import Allotment, GroupShares, Multipliers
from shared.pacing.groups import NO_LIMITS, Limits, interval_of, passed
from shared.pacing.slots import SlotTimeline

START = 1_700_000_000.0


def shares(rate=2.0, since=START, first=0.0, parts=((1, 0.25), (4, 0.75))):
    return GroupShares("g", rate, since, first, [Allotment(*part) for part in parts])


def message(version, at, *groups):
    return Multipliers(version, at, at, 1.0, 10.0, 0.0, [Allotment(1, 1.0)], groups=list(groups))


def timeline(*messages):
    made = SlotTimeline()
    for one in messages:
        made.take(one, None)
    return made


def test_a_limit_holds_until_the_plan_that_has_another():
    one, other = shares(), shares(3.0, START + 20, 40.0)
    plans = timeline(
        message(1, START, one), message(2, START + 10, shares()), message(3, START + 20, other)
    )
    assert plans.limits_after(START + 1, START + 5) == (Limits((one,)), START + 5)
    assert plans.limits_after(START + 5, START + 15) == (Limits((one,)), START + 15)
    assert plans.limits_after(START + 5, START + 25) == (Limits((one,)), START + 20)
    assert plans.limits_after(START + 20, START + 25) == (Limits((other,)), START + 25)
    assert plans.limits_after(START - 5, START + 5) == (NO_LIMITS, START)
    assert SlotTimeline().limits_after(START, START + 1) == (NO_LIMITS, START + 1)


def test_slots_of_groups_move_with_the_clock():
    plans = timeline(message(1, START, shares()))
    plans.shift(-100.0)
    [moved] = plans.newest.limits.groups
    assert passed(moved, START - 95.0) == pytest.approx(10.0)
    assert passed(moved, START - 200.0) == 0.0


def test_shards_share_without_a_gap_and_without_an_overlap():
    limit = shares(parts=((1, 0.1), (4, 0.7), (6, 0.2)))
    bounds = [interval_of(limit, shard) for shard in (1, 4, 6)]
    assert [low for low, _ in bounds] == [0.0, *(high for _, high in bounds[:-1])]
    assert bounds[-1][1] == pytest.approx(1.0)
    assert interval_of(limit, 5) == (0.0, 0.0)
    too_much = shares(parts=((1, 0.8), (4, 0.8)))
    assert interval_of(too_much, 4)[1] == pytest.approx(1.0)
