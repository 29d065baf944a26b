"""Whether ever less is picked: the guard must be lowered in time then, and need not be else."""

import numpy as np
import pytest

from services.scheduler.picking.level import Level
from services.scheduler.picking.priority import HIGHEST_VALUE

TICK = 0.1
NOW = 1.7e9


def after(level, values, *, begin=NOW, speed=1.0):
    """Note one after the other; whether it falls, after each."""
    falls = []
    for tick, value in enumerate(values):
        now = begin + tick * TICK * speed
        level.note(float(value), now, speed)
        falls.append(level.falls(now))
    return np.array(falls)


def steady(seconds, value=2.0, noise=0.05, seed=1):
    random = np.random.default_rng(seed)
    return value * (1.0 + noise * random.uniform(-1.0, 1.0, round(seconds / TICK)))


@pytest.mark.parametrize("speed", [1.0, 20_000.0])
def test_of_a_shard_that_was_just_loaded_nobody_knows_until_as_much_is_picked_for_a_while(speed):
    falls = after(Level(), steady(200, noise=0.0), speed=speed)
    assert falls[: round(9 / TICK)].all()
    assert not falls[round(12 / TICK) :].any()


def test_nor_after_new_pages_took_all_slots():
    level = Level()
    after(level, steady(200))
    assert not level.falls(NOW + 200)
    assert after(level, [HIGHEST_VALUE] * 200, begin=NOW + 200).all()
    falls = after(level, steady(200, noise=0.0), begin=NOW + 220)
    assert falls[: round(9 / TICK)].all()
    assert not falls[round(12 / TICK) :].any()


@pytest.mark.parametrize("speed", [1.0, 20_000.0])
def test_it_is_told_once_that_as_much_is_picked_as_before(speed):
    level, values = Level(), steady(100, noise=0.0)
    told = [
        level.note(float(value), NOW + tick * TICK * speed, speed)
        for tick, value in enumerate(values)
    ]
    assert told.count(True) == 1


def test_after_a_minute_nobody_is_in_doubt_because_more_is_picked():
    """... but as long as it is ever more, less may follow: pages that came to be worth more are
    picked first."""
    falls = after(Level(), 2.0 * np.exp(0.05 * np.arange(0, 100, TICK)))
    assert falls[: round(59 / TICK)].all()
    assert not falls[round(61 / TICK) :].any()


@pytest.mark.parametrize("a_second", [0.1, 0.01, 0.001])
def test_who_picks_ever_less_from_the_start_is_known_to_for_as_long_as_it_lasts(a_second):
    """Also where it is too little to be seen within a minute of another."""
    level = Level()
    falling = 100.0 * np.exp(-a_second * np.arange(0, 100, TICK))
    assert after(level, falling).all()
    falls = after(level, steady(100, value=falling[-1], noise=0.0), begin=NOW + 100)
    assert not falls[round(61 / TICK) :].any()


@pytest.mark.parametrize("speed", [1.0, 20_000.0])
def test_what_is_picked_now_and_then_for_more_hides_nothing(speed):
    falling = 100.0 * np.exp(-0.02 * np.arange(0, 50, TICK))
    falling[1::2] = 500.0
    assert after(Level(), falling, speed=speed).all()


@pytest.mark.parametrize("speed", [1.0, 20_000.0])
def test_ever_less_is_picked_after_a_standstill_and_then_no_more(speed):
    level = Level()
    after(level, steady(200, value=100.0), speed=speed)
    falling = 100.0 * np.exp(-0.01 * np.arange(0, 400, TICK))
    falls = after(level, falling, begin=NOW + 200 * speed, speed=speed)
    assert falls[round(40 / TICK) :].all()
    rest = steady(300, value=falling[-1], noise=0.0)
    falls = after(level, rest, begin=NOW + 600 * speed, speed=speed)
    assert falls[0]
    assert not falls[round(120 / TICK) :].any()


def test_where_more_is_picked_nothing_falls():
    level = Level()
    after(level, steady(100))
    rising = 2.0 * np.exp(0.02 * np.arange(0, 100, TICK))
    assert not after(level, rising, begin=NOW + 100).any()


def test_pages_that_are_worth_nothing_are_no_trouble():
    level = Level()
    after(level, steady(100))
    after(level, np.zeros(10_000), begin=NOW + 100)
    assert level.least == 0.0
    assert not level.falls(NOW + 100 + 10_000 * TICK)


def test_few_picks_that_are_worth_more_say_little():
    level = Level()
    after(level, steady(100, noise=0.0))
    after(level, [50.0], begin=NOW + 100)
    assert 2.0 < level.least < 8.0
    after(level, [2.0], begin=NOW + 101)
    assert level.least == 2.0


def test_slots_that_stay_empty_now_and_then_do_not_tell_what_pages_are_worth():
    level, values = Level(), steady(300)
    values[:: round(5 / TICK)] = 0.0
    falls = after(level, values)
    assert not falls[round(61 / TICK) :].any()
    falling = 2.0 * np.exp(-0.01 * np.arange(0, 100, TICK))
    falling[:: round(5 / TICK)] = 0.0
    assert after(level, falling, begin=NOW + 300)[round(40 / TICK) :].all()


def test_where_no_slot_was_ever_filled_nobody_is_in_doubt_for_longer():
    falls = after(Level(), np.zeros(round(100 / TICK)))
    assert falls[: round(59 / TICK)].all()
    assert not falls[round(61 / TICK) :].any()
