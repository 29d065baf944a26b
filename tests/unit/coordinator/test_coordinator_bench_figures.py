"""The figures of the coordinator's benchmark: they must see what goes wrong."""

import numpy as np
import pytest

from services.bench.coordinator_figures import (
    Crawls,
    budget_of,
    most_over,
    rate_check,
    seconds_until_full,
)
from shared.contracts.messages import Allotment, Multipliers
from shared.pacing.slots import SlotPlan, SlotTimeline

ORIGIN, SPEED = 1000.0, 10.0


def timeline(rate):
    """A budget of so many crawls per second of the wall."""
    message = Multipliers(1, ORIGIN, ORIGIN, 0.1, rate / SPEED, 0.0, [Allotment(0, 1.0)])
    return SlotTimeline([SlotPlan.from_message(message)])


def crawls(times, shard=0):
    times = np.asarray(times, np.float64)
    return Crawls(times, np.full(times.size, shard))


def test_a_rate_is_checked_to_the_crawl():
    exact = crawls(np.arange(1, 4001) / 500)
    assert rate_check(exact, 500.0, 2.0, 6.0, 0.01)["passed"]
    few = crawls(np.arange(1, 4001) / 490)
    found = rate_check(few, 500.0, 2.0, 6.0, 0.01)
    assert (found["passed"], found["error"]) == (False, pytest.approx(-0.02))


def test_the_fullest_second_is_found_wherever_it_begins():
    even = np.arange(1, 1001) / 100
    assert most_over(crawls(even), timeline(100.0), ORIGIN, SPEED) <= 1.0 + 1e-6
    burst = np.sort(np.concatenate([even, np.linspace(4.6, 4.65, 7)]))
    assert most_over(crawls(burst), timeline(100.0), ORIGIN, SPEED) == pytest.approx(7, abs=1.01)
    assert most_over(crawls([]), timeline(100.0), ORIGIN, SPEED) == 0.0
    assert budget_of(timeline(100.0), np.array([2.0]), ORIGIN, SPEED) == pytest.approx([200.0])


def test_a_gap_lasts_until_every_second_is_full_again():
    times = np.arange(1, 1001) / 100
    gap = times[(times < 2.0) | (times > 5.0)]
    assert seconds_until_full(crawls(gap), 100.0, 2.0, 9.0, 2.0) == pytest.approx(3.0, abs=0.1)
    assert seconds_until_full(crawls(times), 100.0, 2.0, 9.0, 2.0) == 0.0
    assert seconds_until_full(crawls(times[times < 6.0]), 100.0, 2.0, 9.0, 2.0) is None


def test_one_shards_crawls_can_be_left_out():
    both = Crawls(np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0]))
    assert both.without(0).times.tolist() == [2.0]
    assert both.within(1.0, 3.0) == 2
