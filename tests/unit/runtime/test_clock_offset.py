"""Where the broker's time lies: intervals that get smaller, and never exclude the truth."""

import math
import random
import time

import pytest

from shared.runtime.clock_offset import ClockOffset, OffsetEstimate
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import WallTime, steady


def measured(estimate, random, at, offset, *, latency=0.1):
    """A record that takes its time there and back; the broker cuts its stamp to milliseconds."""
    there, back = random.uniform(0.0, latency), random.uniform(0.0, latency)
    stamp = math.floor((at + there + offset) * 1000) / 1000
    estimate.note(at, stamp, at + there + back)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("offset", [0.0, -3600.0, 1.7e9 + 0.3])
def test_the_truth_is_never_excluded_and_gets_nearer(seed, offset):
    chance, estimate = random.Random(seed), OffsetEstimate()
    widths = []
    for number in range(60):
        measured(estimate, chance, 100.0 + 2.0 * number, offset)
        assert estimate.least - 1e-6 <= offset <= estimate.most + 1e-6
        widths.append(estimate.error)
    assert sorted(widths)[30] < widths[0]
    assert estimate.error < 0.05


def test_clocks_that_drift_apart_are_followed():
    chance, estimate = random.Random(1), OffsetEstimate()
    for number in range(500):
        at, offset = 2.0 * number, 2.0 * number * 200e-6
        measured(estimate, chance, at, offset, latency=0.004)
        assert estimate.offset == pytest.approx(offset, abs=0.006)


@pytest.mark.parametrize("step", [3600.0, -3600.0, 0.3])
def test_a_broker_whose_clock_is_set_is_believed_at_once(step):
    chance, estimate = random.Random(2), OffsetEstimate()
    for number in range(10):
        measured(estimate, chance, 2.0 * number, 50.0, latency=0.01)
    measured(estimate, chance, 20.0, 50.0 + step, latency=0.01)
    assert estimate.offset == pytest.approx(50.0 + step, abs=0.02)


def test_a_slow_answer_spoils_nothing():
    estimate = OffsetEstimate()
    estimate.note(10.0, 110.003, 10.005)
    near = estimate.offset
    estimate.note(12.0, 112.9, 14.0)
    assert estimate.offset == pytest.approx(near, abs=0.002)
    assert estimate.error < 0.006


def test_how_far_we_may_be_ahead_is_what_no_measurement_has_excluded():
    clock = ClockOffset(load_settings(), lambda _: None, WallTime())
    assert clock.ahead() == 0.0, "nobody tells: the machines' clocks are taken to agree"

    sent_at, broker_is_behind = steady(), time.time() - steady() - 0.1
    clock.estimate.note(sent_at, sent_at + broker_is_behind, sent_at + 0.02)

    assert 0.119 <= clock.ahead() < 0.13


async def test_a_broker_that_does_not_answer_is_said_to_with_a_reason(monkeypatch):
    clock = ClockOffset(load_settings(), lambda _: None, WallTime())

    async def silent():
        raise TimeoutError

    monkeypatch.setattr(clock, "_connect", silent)
    assert not await clock.measure()
    assert clock.trouble == "the broker does not tell its time: TimeoutError"
