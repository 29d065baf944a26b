"""The first ticks after a load look at few of the many pages that are listed, and none at very many
again because a load looked at all of them."""

import numpy as np
import pytest
from test_guard_under_upper_tiers import RATE, shard_in_its_life

PAGES = 120_000
TICK = 0.1

pytestmark = pytest.mark.slow(3)


@pytest.fixture(scope="module")
def loaded():
    """A shard that was just loaded, and what was looked at at each of its first ticks: how many
    pages, how many were listed, whether picks were the best of all."""
    driver, _ = shard_in_its_life(never_crawled=0.0, count=PAGES)
    driver.shard.prepare(driver.now)
    board, ticks = driver.shard.selector._board, []
    for _ in range(180):
        before = untils(board)
        best = np.sort(driver.shard.selector.weigh(driver.now, 0.0, PAGES).priorities)[::-1]
        picks = driver.tick(TICK, RATE, 0.0)
        board = driver.shard.selector._board
        after = untils(board)
        looked_at = sum(before[row] != after[row] for row in before.keys() & after.keys())
        is_best = picks["priority"].min() > 0.999 * best[picks.size - 1]
        ticks.append((looked_at, len(before), is_best))
    assert driver.shard.selector.uncertain_picks == 0
    return np.array(ticks)


def untils(board):
    """Row of each listed page → until when it need not be looked at."""
    entries = board.listed[: int(board.state[0]["listed"])]
    return dict(zip(entries["row"].tolist(), entries["until"].tolist(), strict=True))


def test_no_tick_looks_at_most_of_the_listed_pages(loaded):
    looked_at, listed, _ = loaded.T
    are_many = listed > PAGES / 40
    assert are_many.sum() > 100
    assert (looked_at[are_many] < 0.2 * listed[are_many]).all()


def test_picks_are_the_best_from_the_first_one_on(loaded):
    assert loaded[:, 2].all()


def test_pages_doze_on_while_the_guard_is_lowered():
    """Those that are listed anew are looked at once: there are no more of others that may be
    picked."""
    driver, _ = shard_in_its_life(never_crawled=0.0, count=PAGES)
    driver.shard.prepare(driver.now)
    selector = driver.shard.selector
    for _ in range(40):
        driver.tick(TICK, RATE, 0.0)
    selector._begin_sweep(driver.now, selector._stock.ahead)
    for _ in range(4):
        driver.tick(TICK, RATE, 0.0)
        assert selector._sweep.goes_on
        assert selector._state["dozing"] > 0.6 * selector._state["listed"]
