"""The budget as a sequence of slots: no window ever holds more than its budget plus one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.messages import Allotment, Multipliers
from shared.pacing.budget import Stretch
from shared.pacing.slots import (
    MOST_SLOTS_AT_ONCE,
    NOBODY,
    SlotPlan,
    SlotTimeline,
    is_late,
    next_multipliers,
)


def plan(rate, shares, version=1, effective_at=0.0, first_slot=0.0):
    timeline = SlotTimeline()
    message = next_multipliers(
        timeline,
        now=0.0,
        effective_at=effective_at,
        multiplier=0.1,
        stretch=Stretch(rate),
        shares=shares,
        cause="test",
    )
    made = SlotPlan.from_message(message)
    assert made.first_slot == first_slot
    return made


@settings(max_examples=50, deadline=None)
@given(
    rate=st.floats(0.01, 20_000),
    length=st.floats(0.0, 3.0),
    start=st.floats(0.0, 1e6),
    shards=st.integers(1, 64),
)
def test_any_window_holds_its_budget_to_within_one_over_all_shards(rate, length, start, shards):
    slots, owners = plan(rate, dict.fromkeys(range(shards), 1 / shards)).between(
        start, start + length
    )
    assert abs(len(slots) - rate * length) <= 1 + 1e-6 * rate
    assert np.all(owners != NOBODY)
    assert np.all(np.diff(slots) >= 0)


def said(version, epoch, at, rate=10.0, append_by=None):
    return Multipliers(
        version, at, at, 0.1, rate, 0.0, [Allotment(0, 1.0)], epoch=epoch, append_by=append_by
    )


def test_once_a_new_leader_has_spoken_nobody_goes_by_one_of_before():
    timeline = SlotTimeline()
    assert timeline.take(said(1, 1, at=0.0), 0.0)
    # The claim of a new leader comes too late whenever it comes: it is no plan.
    assert not timeline.take(said(2, 2, at=0.0, rate=99.0, append_by=0.0), 5.0)

    assert not timeline.take(said(3, 1, at=6.0), 5.1), "it was on its way when its leader died"
    assert timeline.newest.version == 1
    assert timeline.last_version == 3
    assert timeline.take(said(4, 2, at=7.0), 5.2)


@pytest.mark.parametrize(
    ("append_by", "appended_at", "late"),
    [(10.0, 10.5, True), (10.0, 10.0, False), (10.0, None, False), (None, 1e9, False)],
)
def test_a_message_counts_if_the_broker_had_it_in_time(append_by, appended_at, late):
    message = Multipliers(1, 9.0, 10.3, 0.1, 5.0, 0.0, [], append_by=append_by)
    assert is_late(message, appended_at) == late


def test_a_plan_that_is_left_out_changes_nothing_but_the_next_version():
    timeline = SlotTimeline([plan(5.0, {0: 1.0})])
    late = SlotPlan.from_message(Multipliers(7, 9.0, 10.3, 0.1, 90.0, 0.0, []))
    timeline.leave_out(late)

    message = next_multipliers(
        timeline,
        now=20.0,
        effective_at=21.0,
        multiplier=0.1,
        stretch=Stretch(9.0),
        shares={0: 1.0},
        cause="test",
    )

    assert message.version == 8
    assert message.first_slot == 5.0 * 21.0
    assert len(timeline.between(10.0, 11.0)[0]) == 5


def test_ticks_of_any_length_see_each_slot_exactly_once():
    rng = np.random.default_rng(1)
    whole = plan(731.3, {0: 0.25, 1: 0.75}).between(0.0, 50.0)[0]
    timeline = SlotTimeline([plan(731.3, {0: 0.25, 1: 0.75})])
    ticks = np.concatenate(([0.0], np.sort(rng.uniform(0, 50, 400)), [50.0]))
    pieces = [timeline.between(a, b)[0] for a, b in itertools.pairwise(ticks)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_each_shard_gets_its_share_evenly():
    times, owners = plan(1000.0, {3: 0.1, 5: 0.6, 9: 0.3}).between(0.0, 20.0)
    for shard, share in ((3, 0.1), (5, 0.6), (9, 0.3)):
        mine = times[owners == shard]
        assert len(mine) == pytest.approx(share * 20_000, abs=4)
        per_second = np.histogram(mine, bins=20, range=(0, 20))[0]
        assert np.ptp(per_second) <= 4


def test_numbers_run_on_through_a_change_of_bandwidth():
    timeline = SlotTimeline([plan(100.0, {0: 1.0})])
    message = next_multipliers(
        timeline,
        now=4.0,
        effective_at=4.255,
        multiplier=0.2,
        stretch=Stretch(200.0),
        shares={0: 0.5, 1: 0.5},
        cause="bandwidth",
    )
    timeline.add(SlotPlan.from_message(message))
    assert message.version == 2
    times, _ = timeline.between(4.0, 5.0)
    assert len(times) == pytest.approx(25.5 + 149, abs=1)
    assert np.diff(times).min() > 0.004
    assert timeline.passed(5.0) == pytest.approx(425.5 + 149)


def test_an_older_plan_never_replaces_a_newer_one():
    newer = plan(10.0, {0: 1.0})
    timeline = SlotTimeline([newer])
    timeline.add(plan(99.0, {0: 1.0}))
    assert timeline.newest is newer


def test_a_budget_of_nothing_has_no_slots_and_no_shares_have_no_owner():
    assert plan(0.0, {0: 1.0}).between(0, 100)[0].size == 0
    times, owners = plan(10.0, {}).between(0, 1)
    assert times.size == 10
    assert np.all(owners == NOBODY)


def test_far_along_the_sequence_shares_are_still_exact():
    made = SlotPlan(1, 0.0, 1e4, 3e12, np.array([0, 1], np.int32), np.array([0.5, 1.0]), 0.0)
    _, owners = made.between(0.0, 10.0)
    assert np.mean(owners == 0) == pytest.approx(0.5, abs=1e-4)


def test_a_stretch_of_absurdly_many_slots_gives_only_its_last_ones():
    times, owners = plan(1e6, {0: 1.0}).between(0.0, 1e9)
    assert times.size == owners.size == MOST_SLOTS_AT_ONCE
    assert times[-1] == pytest.approx(1e9)


def ramp(start, end, seconds, shards=4, first_slot=0.0):
    share = 1 / shards
    message = Multipliers(
        version=1,
        computed_at=0.0,
        effective_at=100.0,
        multiplier=0.1,
        crawls_per_second=start,
        first_slot=first_slot,
        allotments=[Allotment(n, share) for n in range(shards)],
        ramp_to=end,
        ramp_seconds=seconds,
    )
    return SlotPlan.from_message(message)


@settings(max_examples=100, deadline=None)
@given(
    start=st.floats(0.0, 5_000) | st.just(0.0),
    end=st.floats(0.0, 5_000) | st.just(0.0),
    seconds=st.floats(0.01, 3.0),
    since=st.floats(0.0, 4.0),
    length=st.floats(0.0, 2.0),
)
def test_in_a_ramp_any_window_holds_the_integral_of_the_rate_to_within_one(
    start, end, seconds, since, length
):
    made = ramp(start, end, seconds)

    def integral(elapsed):
        inside = min(elapsed, seconds)
        mean = start + (end - start) * inside / seconds / 2
        return mean * inside + end * (elapsed - inside)

    times, owners = made.between(100.0 + since, 100.0 + since + length)
    budget = integral(since + length) - integral(since)
    assert abs(len(times) - budget) <= 1 + 1e-6 * (start + end)
    assert np.all(np.diff(times) >= 0)
    assert np.all(owners != NOBODY)
    passed = np.array([made.passed(time) for time in times])
    numbers = np.rint(passed)
    assert np.all(np.abs(passed - numbers) < 1e-3 + 1e-6 * (start + end))


def test_a_ramp_goes_on_from_any_of_its_moments():
    whole = ramp(10.0, 110.0, 20.0)
    assert whole.rate_at(100.0) == 10.0
    assert whole.rate_at(110.0) == 60.0
    assert whole.rate_at(130.0) == 110.0
    assert whole.stretch(105.0) == Stretch(35.0, 110.0, 15.0)
    assert whole.stretch(121.0) == Stretch(110.0)
    timeline = SlotTimeline([whole])
    message = next_multipliers(
        timeline,
        now=105.0,
        effective_at=105.0,
        multiplier=0.0,
        stretch=whole.stretch(105.0),
        shares={0: 1.0},
        cause="ramp",
    )
    later = SlotPlan.from_message(message)
    for time in (106.0, 119.0, 125.0):
        assert later.passed(time) == pytest.approx(whole.passed(time), rel=1e-12)


def of_epoch(epoch, version, rate):
    shards, bounds = np.zeros(1, np.int32), np.ones(1)
    return SlotPlan(version, 0.0, rate, 0.0, shards, bounds, 0.1, epoch)


def test_a_leader_that_was_replaced_is_not_listened_to_whatever_its_versions():
    timeline = SlotTimeline([of_epoch(1, 100, 1.0), of_epoch(2, 101, 2.0)])
    for version in (101, 102, 500):
        timeline.add(of_epoch(1, version, 99.0))
    assert timeline.newest.slots_per_second == 2.0
    timeline.add(of_epoch(2, 102, 3.0))
    timeline.add(of_epoch(3, 1, 4.0))
    assert timeline.newest.slots_per_second == 4.0


def test_a_shards_slots_between_two_moments_are_known_beforehand():
    timeline = SlotTimeline([plan(100.0, {0: 0.25, 1: 0.75})])
    message = next_multipliers(
        timeline,
        now=4.0,
        effective_at=5.0,
        multiplier=0.2,
        stretch=Stretch(200.0),
        shares={0: 0.5, 2: 0.5},
        cause="bandwidth",
    )
    timeline.add(SlotPlan.from_message(message))
    assert timeline.allotted(0, 3.0, 7.0) == pytest.approx(50 + 200)
    assert timeline.allotted(1, 3.0, 7.0) == pytest.approx(150)
    assert timeline.allotted(2, 3.0, 7.0) == pytest.approx(200)
    assert timeline.allotted(9, 3.0, 7.0) == 0.0
    _, owners = timeline.between(3.0, 7.0)
    assert np.sum(owners == 0) == pytest.approx(250, abs=3)
    timeline.forget(6.0)
    assert timeline.newest.version == 2
    assert timeline.at(4.0) is None
