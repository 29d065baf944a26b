"""What the benchmarks of recovery and of the whole loop make of what they saw."""

import os

import numpy as np
import pytest

from services.bench.loop import _answer, _Step
from services.bench.processor_time import Usage, children_of, usage_of, usage_with_children
from services.bench.real_system import Requests
from services.bench.recovery_kill import served_again

RATE = 100.0


def test_a_killed_scheduler_is_replaced_when_its_last_shard_is_served():
    times = np.array([1.0, 2.0, 3.0, 9.0, 12.5, 13.0, 20.0])
    owners = np.array([0, 1, 2, 2, 0, 2, 1])
    found = served_again(times, owners, {0, 1}, 2.5)
    assert found["by_shard"] == {"0": 10.0, "1": 17.5}
    assert found["seconds_until_served"] == 17.5
    assert found["longest_gap_of_others_seconds"] == 6.0


def test_a_shard_that_nobody_serves_is_told():
    found = served_again(np.array([1.0, 5.0]), np.array([0, 1]), {0, 1}, 2.0)
    assert found["seconds_until_served"] is None
    assert found["longest_gap_of_others_seconds"] is None


def step(*, unread=0, used=5.0):
    return _Step(
        RATE,
        start=10.0,
        end=20.0,
        used={"scheduler": Usage(used), "world": Usage(1.0)},
        lags={"scheduler crawl-outcomes": unread} if unread else {},
        status={"in_flight": 3},
        signals=500,
        not_drawn=None,
    )


def requests(rate, late=0.2):
    slots = np.arange(0.0, 30.0, 1.0 / rate)
    return Requests(slots, slots + late, np.zeros(slots.size, np.int64))


def test_a_rate_that_is_met_without_a_lag_is_held():
    answer = _answer(step(), requests(RATE))
    assert answer["held"]
    assert answer["achieved_per_second"] == pytest.approx(RATE)
    assert answer["seconds_over_budget"] == 0
    assert answer["slot_to_request_seconds"] == {"p50": 0.2, "p99": 0.2}
    assert answer["core_share"] == {"scheduler": 0.5, "world": 0.1}
    assert answer["microseconds_per_crawl"]["scheduler"] == pytest.approx(5000.0)
    assert answer["stopped_by"] is None


@pytest.mark.parametrize(("achieved", "unread"), [(98.0, 0), (RATE, 1000)])
def test_a_rate_that_is_missed_or_piles_up_is_not_held(achieved, unread):
    answer = _answer(step(unread=unread, used=9.9), requests(achieved))
    assert not answer["held"]
    assert "scheduler" in answer["stopped_by"]


def test_the_time_of_processes_is_what_the_system_counts():
    mine = usage_of(os.getpid())
    counted = os.times()
    assert mine.seconds == pytest.approx(counted.user + counted.system, abs=0.5)
    assert mine.resident_bytes > 1_000_000
    assert os.getpid() in children_of(os.getppid())
    assert usage_with_children(os.getppid()).resident_bytes >= mine.resident_bytes
    assert usage_of(2**22 + 1) == Usage()
