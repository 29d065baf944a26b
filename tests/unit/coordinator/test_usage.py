"""Which shards cannot use their slots, told from noise; and that it is noticed when they can."""

import math

import numpy as np
import pytest

from services.coordinator.usage import Made, Usage

LEAST = 1.25


def run(wanted, able, seconds, usage=None, lateness=0.05, seed=1, through=10.0, least=LEAST):
    """Reports of a shard that wants so many slots a second; slots a second that it had."""
    rng = np.random.default_rng(seed)
    usage = Usage() if usage is None else usage
    late, had = 0.0, []
    for _ in range(seconds):
        slots = min(wanted, max(usage.limit, least))
        before, late = late, rng.uniform(0, lateness)
        crawls = max(min(slots, able) * (1 + before - late), 0.0)
        usage.observe(1.0, Made(slots, crawls), through)
        had.append(slots)
    return usage, np.array(had)


@pytest.mark.parametrize("lateness", [0.0, 0.05, 0.25])
@pytest.mark.parametrize("rate", [0.2, 5.0, 150.0, 10_000.0])
def test_reports_that_are_a_tick_late_are_no_shortfall(rate, lateness):
    usage, had = run(rate, math.inf, 600, lateness=lateness)
    assert usage.usable == math.inf
    assert np.all(had == rate)
    assert usage.ratio == pytest.approx(1.0, abs=lateness / 2 + 1e-9)


@pytest.mark.parametrize("able", [0.0, 50.0, 100.0])
def test_a_large_shortfall_is_found_within_two_reports(able):
    usage, had = run(150.0, able, 3)
    assert had[2] == pytest.approx(max(able * 1.02, LEAST), abs=0.06 * 150)
    assert usage.usable == pytest.approx(able, abs=0.06 * 150)


def test_a_small_shortfall_is_found_in_time_and_little_is_lost_to_it():
    _, had = run(150.0, 145.0, 120)
    assert had.min() < 149
    assert np.mean(had - np.minimum(had, 145.0)) < 0.03 * 150


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("wanted", [0.5, 1.3, 5.0, 15.0, 150.0, 1500.0])
def test_a_shard_that_can_use_more_again_has_it_all_within_a_minute(wanted, part):
    least = 0.01 * wanted
    usage, _ = run(wanted, part * wanted, 15, least=least)
    _, had = run(wanted, math.inf, 60, usage, least=least)
    assert had[-1] == wanted


@pytest.mark.parametrize("able", [0.0, 0.5, 5.0])
def test_less_and_less_is_tried_with_a_shard_that_cannot_use_more(able):
    usage, _ = run(3 * able + 1.0, able, 300, least=0.0)
    _, had = run(3 * able + 1.0, able, 100, usage, least=0.0)
    assert np.mean(had - able) < 0.05 + 0.03 * able


def test_hosts_that_let_more_through_are_news_at_once():
    usage, _ = run(150.0, 50.0, 20)
    _, had = run(150.0, math.inf, 2, usage, through=20.0)
    assert had[-1] == 150.0


def test_a_limit_that_does_not_matter_is_forgotten():
    usage, _ = run(150.0, 50.0, 20)
    run(20.0, math.inf, 40, usage)
    assert usage.usable == math.inf


@pytest.mark.parametrize("lateness", [0.05, 0.25])
@pytest.mark.parametrize("rate", [5.0, 150.0, 10_000.0])
@pytest.mark.parametrize("answered", [0.0, 0.001, 0.1])
def test_a_fleet_that_answers_next_to_nothing_is_no_shortfall_of_a_shard(rate, answered, lateness):
    rng, usage, late = np.random.default_rng(2), Usage(), 0.0
    for _ in range(300):
        # What waits is counted when ticks come, a tick more or less than there were slots.
        before, late = late, rng.uniform(0, lateness)
        had = rate * (1 + before - late)
        made = Made(rate, answered * had, held=(1 - answered) * had)
        assert not usage.observe(1.0, made, 10.0)
    assert usage.usable == math.inf


def test_what_a_fleet_holds_back_after_a_stall_says_nothing_of_the_limit():
    usage, _ = run(150.0, 50.0, 20)
    limit = usage.limit
    usage.observe(1.0, Made(50.0, 0.0, held=90.0), 10.0)
    assert usage.limit == limit


def test_the_ratio_says_what_part_of_the_slots_is_filled():
    usage = Usage()
    for _ in range(20):
        usage.observe(0.5, Made(2.0, 1.5), 1.0)
    assert usage.ratio == pytest.approx(0.75, abs=0.01)
    assert Usage().ratio == 1.0
    assert not Usage().observe(0.0, Made(5.0, 0.0), 0.0)
