"""Where shares change all the time, each shard has its slots nevertheless, and in time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.messages import Allotment, Multipliers
from shared.pacing.arranging import MOST_ARRANGED, Owed
from shared.pacing.budget import Stretch
from shared.pacing.slots import NOBODY, SlotPlan, SlotTimeline, next_multipliers


class Changing:
    """Shards whose shares change each second."""

    def __init__(self, shares, rate, *, seed=0, arranged=True):
        self.rng = np.random.default_rng(seed)
        self.shares = dict(enumerate(shares))
        self.rate = rate
        self.timeline = SlotTimeline()
        self.owed = Owed()
        self.arranged = arranged
        self.debts = np.zeros(len(shares))
        self.last_slot = np.zeros(len(shares))
        self.longest = np.zeros(len(shares))
        """Seconds without a slot."""
        self.total = 0

    def second(self, at, changes=0.15):
        """One that begins with new shares; counted apart from what is tested."""
        moved = {s: w * math.exp(self.rng.normal(0, changes)) for s, w in self.shares.items()}
        whole = sum(moved.values())
        self.shares = {shard: share / whole for shard, share in moved.items()}
        order = list(self.shares)
        if self.arranged:
            order = self.owed.arranged(self.timeline, self.shares, at, self.rate)
        assert sorted(order) == sorted(self.shares)
        message = next_multipliers(
            self.timeline,
            now=at,
            effective_at=at,
            multiplier=0.0,
            stretch=Stretch(self.rate),
            shares={shard: self.shares[shard] for shard in order},
            cause="test",
        )
        self.timeline.take(message, None)
        times, owners = self.timeline.newest.between(at, at + 1.0)
        assert NOBODY not in owners
        self.total += owners.size
        fell = np.bincount(owners, minlength=len(self.shares))
        self.debts += self.rate * np.array(list(self.shares.values())) - fell
        for time, owner in zip(times, owners, strict=True):
            self.longest[owner] = max(self.longest[owner], time - self.last_slot[owner])
            self.last_slot[owner] = time


@pytest.mark.parametrize("seed", range(4))
def test_what_a_shard_is_owed_stays_small_however_shares_change(seed):
    shares = np.random.default_rng(seed).lognormal(0, 1.5, 64)
    run = Changing(shares, 70.0, seed=seed)
    by_number = Changing(shares, 70.0, seed=seed, arranged=False)
    for second in range(120):
        run.second(float(second))
        by_number.second(float(second))
        assert run.debts.max() < 3.0
    # The check can fail: without an order shards wait for four times as many.
    assert by_number.debts.max() > 6.0
    assert run.total == by_number.total == 120 * 70


def test_a_small_share_has_its_slots_in_time():
    """A slot in five seconds is one for a page that is late: it must not be by chance."""
    shares = [0.2 / 70.0] * 20 + [(1 - 4.0 / 70.0) / 44] * 44
    run = Changing(shares, 70.0, seed=3)
    for second in range(300):
        run.second(float(second), changes=0.15)
        # Where they are changed, small ones stay small.
        run.shares = dict(enumerate(shares))
    assert run.longest[:20].max() < 10.0
    by_number = Changing(shares, 70.0, seed=3, arranged=False)
    for second in range(300):
        by_number.second(float(second), changes=0.15)
        by_number.shares = dict(enumerate(shares))
    assert by_number.longest[:20].max() > 20.0


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.floats(0.0, 1.0), max_size=40),
    slots=st.floats(0.0, 1e5),
    first=st.floats(0.0, 1e12),
)
def test_all_shards_are_there_once(shares, slots, first):
    whole = max(sum(shares), 1.0)
    given_shares = {7 * n: share / whole for n, share in enumerate(shares)}
    said = Multipliers(1, 0.0, 0.0, 0.1, 1.0, first, [Allotment(0, 1.0)])
    timeline = SlotTimeline([SlotPlan.from_message(said)])
    assert timeline.passed(0.0) == first
    assert sorted(Owed().arranged(timeline, given_shares, 0.0, slots)) == sorted(given_shares)


def test_of_very_many_shards_those_come_first_to_which_most_is_owed():
    count = 3 * MOST_ARRANGED
    run = Changing([1.0] * count, 100.0)
    for second in range(30):
        run.second(float(second))
    owed = run.owed.at(run.timeline, 30.0)
    first = run.owed.arranged(run.timeline, run.shares, 30.0, 100.0)[:MOST_ARRANGED]
    last = set(run.shares) - set(first)
    assert min(owed[shard] for shard in first) >= max(owed[shard] for shard in last)


def test_a_clock_that_is_set_changes_no_debt():
    runs = [Changing([1.0, 2.0, 3.0, 0.1], 5.0), Changing([1.0, 2.0, 3.0, 0.1], 5.0)]
    for second in range(10):
        runs[0].second(float(second))
        runs[1].second(float(second))
    runs[1].timeline.shift(-1000.0)
    runs[1].owed.shift(-1000.0)
    here = runs[0].owed.at(runs[0].timeline, 10.0)
    assert here == pytest.approx(runs[1].owed.at(runs[1].timeline, -990.0))
    for number, at in enumerate((10.0, -990.0)):
        runs[number].second(at)
    assert runs[0].owed.at(runs[0].timeline, 11.0) == pytest.approx(
        runs[1].owed.at(runs[1].timeline, -989.0)
    )


def test_what_was_counted_once_is_not_counted_again():
    run = Changing([1.0, 2.0, 3.0], 5.0)
    for second in range(5):
        run.second(float(second))
    before = run.owed.at(run.timeline, 5.0)
    assert run.owed.at(run.timeline, 5.0) == before
    assert list(before.values()) == pytest.approx(run.debts[list(before)].tolist())


def test_a_plan_that_nobody_came_to_hear_of_counts_for_nothing():
    """It was to hold from far ahead on; another takes effect before."""
    heard, unheard = Changing([1.0, 2.0, 3.0], 5.0), Changing([1.0, 2.0, 3.0], 5.0)
    for second in range(20):
        if second % 3 == 0:
            unheard.owed.arranged(unheard.timeline, unheard.shares, second + 7.3, 5.0)
        heard.second(float(second))
        unheard.second(float(second))
    np.testing.assert_array_equal(heard.debts, unheard.debts)
    debts = unheard.owed.at(unheard.timeline, 20.0)
    assert [debts[n] for n in range(3)] == pytest.approx(unheard.debts.tolist())


@pytest.mark.parametrize("rate", [0.9, 0.5, 0.2])
def test_slots_are_made_up_for_where_one_does_not_come_each_second(rate):
    """A plan then holds for less than a slot: the next one there is counts."""
    shares = np.random.default_rng(0).lognormal(0, 0.5, 16)
    run = Changing(shares, rate, seed=5)
    for second in range(int(200 / rate)):
        run.second(float(second), changes=0.1)
        # As they are, and not as chance would have them by and by.
        run.shares = dict(enumerate(shares / shares.sum()))
        assert run.debts.max() < 1.5
