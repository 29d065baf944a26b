"""A shard that was just loaded lists many pages until it is seen what they are worth, and then few;
those that need not be listed go back to the calendar at a cost that does not grow with the list."""

import numpy as np
import pytest
from test_guard_under_upper_tiers import RATE, shard_of_equals
from test_lowering_the_guard import listed_values

from services.scheduler.picking import raising
from services.scheduler.picking.stock import is_crowded

PAGES = 40_000
TICK = 0.15

pytestmark = pytest.mark.slow(1)


def just_imported():
    """All pages were crawled just now, but for a few that never were; of one of 16 shards."""
    driver, _ = shard_of_equals(never_crawled=0.05, count=PAGES)
    driver.shard.selector.share_work(16)
    driver.shard.prepare(driver.now)
    return driver


def ticks(driver, seconds, rate=RATE):
    for _ in range(round(seconds / TICK)):
        driver.tick(TICK, rate, 0.0)


def test_few_stay_listed_once_it_is_seen_that_picks_are_worth_no_less():
    driver = just_imported()
    selector = driver.shard.selector
    listed = []
    for _ in range(100):  # some go back, and others come, from one tick to the next
        ticks(driver, TICK)
        listed.append(int(selector._state["listed"]))
    assert max(listed[-30:]) > 30 * RATE
    ticks(driver, 20)
    assert selector._state["listed"] < 5 * RATE
    ticks(driver, 40)
    assert selector._state["listed"] < 5 * RATE
    assert selector.sweeps == 1
    assert selector.uncertain_picks == 0


def test_where_few_can_go_back_the_list_is_not_looked_through_at_each_tick(monkeypatch):
    driver, looks = just_imported(), []

    def counted(*arguments):
        looks.append(driver.now)
        return shed_listed(*arguments)

    shed_listed = raising.shed_listed
    monkeypatch.setattr(raising, "shed_listed", counted)
    ticks(driver, 7)
    looks.clear()
    ticks(driver, 6)
    assert len(looks) < 6 / TICK / 2


def test_while_far_too_many_are_listed_some_are_looked_at_a_few_times_a_second(monkeypatch):
    driver, looks = just_imported(), []

    def counted(*arguments):
        looks.append(driver.now)
        return priorities_at(*arguments)

    priorities_at = raising.priorities_at
    monkeypatch.setattr(raising, "priorities_at", counted)
    ticks(driver, 8)
    looks.clear()
    for _ in range(12):
        driver.tick(TICK, 20.0, 0.0)
        assert driver.shard.selector._state["is_crowded"]
    assert 4 <= len(looks) <= 7


def test_how_far_the_guard_is_raised_goes_by_what_pages_are_worth_now():
    """... not by what they were when they were looked at: nobody looks at most of them."""
    driver = just_imported()
    selector = driver.shard.selector
    ticks(driver, 8)
    ticks(driver, 2, rate=20.0)
    values = listed_values(selector, driver.now)
    kept = selector._stock.kept(selector._stock.wanted, is_held=True, is_falling=True)
    assert values.size > 2 * kept
    assert kept / 2 < (values > selector.guard).sum() < 1.5 * kept


def test_the_guard_is_never_raised_above_what_is_picked():
    driver = just_imported()
    ticks(driver, 8)
    board = driver.shard.selector._board
    picked = 1.5 * float(board.state[0]["guard"])
    raising.Raising(np.random.default_rng(1), 1.0).by_sample(
        board, driver.now, 1, picked, 100, is_certain=True
    )
    assert 0.99 * picked < board.state[0]["guard"] < picked


def test_a_guard_that_had_to_be_lowered_stays_low_for_a_minute():
    driver = just_imported()
    selector = driver.shard.selector
    ticks(driver, 80)
    assert selector._state["listed"] < 4 * selector._stock.wanted
    selector._begin_sweep(driver.now, selector._stock.many)
    ticks(driver, 50)
    assert not selector._level.falls(driver.now)
    assert selector._state["listed"] > 4 * selector._stock.wanted
    ticks(driver, 30)
    assert selector._state["listed"] < 4 * selector._stock.wanted


@pytest.mark.parametrize("most", [1_000, 10_000, 100_000, 1_000_000])
def test_a_long_list_is_not_looked_through(most):
    assert is_crowded(2 * most + 1, most)
    assert not is_crowded(min(most + most // 2, 60_000), most)
    assert is_crowded(most + 100_000, most)
    assert not is_crowded(most, most)
