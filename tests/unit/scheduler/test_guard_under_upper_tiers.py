"""Pages that are new, or were not answered, do not make all the others wait on the list."""

from functools import partial

import numpy as np
import pytest

from services.bench.scheduled_pages import ORIGIN, Population, make_filled_shard
from services.bench.scheduler_driver import Driver
from services.scheduler.picking.filled import Filled
from services.scheduler.picking.stock import Stock, reached_by
from services.scheduler.picking.sweep import Sweep
from services.scheduler.state.rows import NEVER, Rows

PAGES = 200_000
RATE = 400.0
TICK = 0.1


def shard_in_its_life(*, never_crawled, late_seconds=0.0, count=PAGES):
    """Pages are at random moments between two crawls, but for a part that is new; or all are as
    late as after so long a standstill."""
    population = Population(count, RATE, 0.0, count // 50, seed=3)
    shard, multiplier = make_filled_shard(population, request_timeout=3.0)
    shard.pages["last_crawled_at"][:count] -= late_seconds
    shard.pages["last_crawled_at"][: round(never_crawled * count)] = NEVER
    return Driver(shard, 3), multiplier


def shard_of_equals(*, never_crawled, count=PAGES):
    """All pages were crawled just now, a part never: what an import looks like."""
    driver, multiplier = shard_in_its_life(never_crawled=never_crawled, count=count)
    pages = driver.shard.pages[:count]
    pages["last_crawled_at"][pages["last_crawled_at"] != NEVER] = ORIGIN
    pages["signals"] = 0
    return driver, multiplier


class Unanswering(Driver):
    """Loses one answer of twenty."""

    def pick(self, slots: np.ndarray, rate: float) -> Rows:
        picks = super().pick(slots, rate)
        at, crawls = self._waiting[-1]
        self._waiting[-1] = (at, crawls[np.arange(crawls.size) % 20 != 0])
        return picks


@pytest.mark.slow(3)
def test_while_new_pages_take_every_slot_few_others_are_listed():
    driver, _ = shard_of_equals(never_crawled=0.09)
    selector = driver.shard.selector
    listed = []
    for _ in range(400):
        picks = driver.tick(TICK, RATE, 0.0)
        assert (picks["tier"] > 0).all()
        listed.append(selector.candidates - int(selector._state["urgent"]))
    # All pages come up at once; some seconds of crawling stay listed.
    assert max(listed[300:]) < 60 * RATE < PAGES / 4
    # Nobody looks through them, but for those that came since the last look.
    assert selector._state["dozing"] > 0.9 * selector._state["listed"] > 0


@pytest.mark.slow(1)
def test_after_the_new_pages_the_best_of_the_others_are_picked():
    driver, _ = shard_of_equals(never_crawled=0.02)
    while (driver.tick(TICK, RATE, 0.0)["tier"] > 0).any():
        pass
    for _ in range(1200):
        driver.tick(TICK, RATE, 0.0)
    selector = driver.shard.selector
    before = selector.uncertain_picks
    for _ in range(20):
        slots = driver.now + np.arange(1, 41) / RATE
        best = np.sort(selector.weigh(float(slots[0]), 0.0, PAGES).priorities)[-40:]
        picks = driver.pick(slots, RATE)
        driver.now += TICK
        assert np.allclose(np.sort(picks["priority"]), best, rtol=1e-9)
        driver.events(TICK, 0.0)
    assert selector.uncertain_picks == before


@pytest.mark.slow(1)
def test_while_new_pages_will_take_every_slot_for_long_the_others_are_left_alone():
    driver, _ = shard_in_its_life(never_crawled=0.2)
    selector = driver.shard.selector
    for _ in range(100):
        driver.tick(TICK, RATE, 0.0)
    assert selector.sweeps == 0
    assert selector._state["listed"] < PAGES / 8


@pytest.mark.slow(3)
@pytest.mark.parametrize("new", [0.0, 0.03])
@pytest.mark.parametrize("late_seconds", [0.0, 20_000.0])
def test_a_shard_that_was_loaded_is_picked_best_from_the_first_second_on(new, late_seconds):
    """What waits is worth much at first, and ever less; the shard shares its thread with others, so
    that to look at all pages again takes half a minute."""
    driver, _ = shard_in_its_life(never_crawled=new, late_seconds=late_seconds)
    selector = driver.shard.selector
    selector.share_work(16)
    driver.shard.prepare(ORIGIN)
    while (driver.tick(TICK, RATE, 0.0)["tier"] > 0).any():
        pass
    picks = 0
    for _ in range(600):
        picks += driver.tick(TICK, RATE, 0.0).size
    assert selector.uncertain_picks < picks / 1000
    if late_seconds:
        assert selector.sweeps > 0


@pytest.mark.slow(1)
def test_a_guard_that_is_being_lowered_is_not_raised_above_what_will_be_picked_next():
    """Of very different pages that were all crawled just now, few are worth most."""
    driver, _ = shard_of_equals(never_crawled=0.05)
    selector, pages = driver.shard.selector, driver.shard.pages
    pages["importance"][:PAGES] = np.exp(np.random.default_rng(1).normal(0, 2, PAGES))
    selector.share_work(16)
    driver.shard.prepare(ORIGIN)
    while (driver.tick(TICK, RATE, 0.0)["tier"] > 0).any():
        pass
    for _ in range(60):
        driver.tick(TICK, RATE, 0.0)
    for _ in range(200):
        slots = round(RATE * TICK)
        now = driver.now + 1 / RATE
        best = np.sort(selector.weigh(now, 0.0, PAGES).priorities)[-slots:]
        assert driver.tick(TICK, RATE, 0.0)["priority"].sum() > 0.999 * best.sum()


@pytest.mark.slow(2)
@pytest.mark.parametrize("new", [0.01, 0.05, 0.3])
def test_however_few_pages_are_new_the_best_of_the_others_are_picked_right_after_them(new):
    """All others were crawled just now, and some are worth far more than most. They are placed
    while the new ones take all slots, be it for two seconds, for twenty, or for long."""
    driver, _ = shard_of_equals(never_crawled=new)
    selector, pages = driver.shard.selector, driver.shard.pages
    pages["importance"][:PAGES] = np.exp(np.random.default_rng(1).normal(0, 2, PAGES))
    selector.share_work(16)
    driver.shard.prepare(ORIGIN)
    while (driver.tick(TICK, 2 * RATE, 0.0)["tier"] > 0).all():
        pass
    # The guard is what they are worth by now, not what they were as it was lowered.
    assert selector._state["listed"] < PAGES / 4
    for _ in range(100):
        slots = round(2 * RATE * TICK)
        now = driver.now + 0.5 / RATE
        best = np.sort(selector.weigh(now, 0.0, PAGES).priorities)[-slots:]
        picks = driver.tick(TICK, 2 * RATE, 0.0)
        assert picks["priority"].sum() > 0.999 * best.sum()
    assert selector.uncertain_picks == 0
    assert selector.sweeps == 1


def filled(*, by_upper_tiers, by_value=0, slots=40):
    crawls = by_upper_tiers + by_value
    return Filled(slots, crawls, by_value, 1.0, 1.0 if by_value else np.inf, 0)


def test_the_guard_is_lowered_before_the_upper_tiers_have_no_more_pages():
    stock = Stock.of(40, RATE, 60 * PAGES)
    until_lowered, is_lean = stock.until_swept, partial(stock.is_lean, is_falling=True)
    assert until_lowered == round(stock.sweep_seconds * RATE)
    spared = stock.spared_seconds(filled(by_upper_tiers=40), until_lowered // 3)
    assert spared == stock.sweep_seconds / 3
    assert stock.spared_seconds(filled(by_upper_tiers=40), 10**6) == stock.sweep_seconds == 30.0
    # Nothing is spared where slots go to others, or to nobody.
    assert stock.spared_seconds(filled(by_upper_tiers=39, by_value=1), 10**6) == 0.0
    assert stock.spared_seconds(filled(by_upper_tiers=39), 10**6) == 0.0
    assert stock.spared_seconds(filled(by_upper_tiers=0), 0) == 0.0
    assert is_lean(filled(by_upper_tiers=40), 0, until_lowered)
    assert not is_lean(filled(by_upper_tiers=40), 0, 10**6)


def test_all_pages_are_placed_anew_in_the_time_that_is_given():
    sweep, placed, now = Sweep(), 0, 100.0
    sweep.begin(now, 10.0)
    while placed < PAGES and now < 200.0:
        now += TICK
        placed += sweep.due(now, PAGES)
    assert now == pytest.approx(110.0, abs=2 * TICK)


def test_few_pages_are_placed_anew_at_once_however_long_nobody_asked():
    sweep = Sweep()
    sweep.begin(100.0, 10.0)
    assert 0 < sweep.due(200.0, PAGES) <= PAGES / 20


@pytest.mark.parametrize("rate", [0.5, 50.0, 5_000.0])
def test_where_ever_less_is_picked_the_guard_is_lowered_far_enough_for_the_next_time(rate):
    stock = Stock.of(round(rate * TICK), rate, PAGES)
    assert stock.swept(is_falling=True) >= stock.until_swept
    assert stock.kept(0, is_held=False, is_falling=True) >= 1.4 * stock.until_swept


@pytest.mark.parametrize("seconds", [10.0, 50.0, 100.0, 300.0, 1e5])
def test_however_soon_all_pages_are_crawled_few_of_them_wait_on_the_list(seconds):
    """... and the guard is lowered the faster, by no more than a twentieth of the pages a tick."""
    rate = PAGES / seconds
    stock = Stock.of(round(rate * TICK), rate, PAGES)
    assert stock.ahead <= max(PAGES / 16, 4.5 * rate)
    assert stock.many - 8 * stock.wanted <= stock.ahead
    assert 3.0 <= stock.sweep_seconds <= 30.0
    assert stock.until_swept == pytest.approx(stock.sweep_seconds * rate, abs=1.0)


@pytest.mark.parametrize("left", [0.0, 0.5, 0.9])
def test_a_guard_keeps_as_many_as_it_is_to_however_many_have_left_the_list(left):
    random = np.random.default_rng(7)
    values, kept = random.random(50_000), 4_000
    is_left = random.random(values.size) < left
    drawn = random.integers(0, values.size, 20_000)
    guard = reached_by(values[drawn[~is_left[drawn]]], drawn.size, values.size, kept)
    assert (values[~is_left] >= guard).sum() == pytest.approx(kept, rel=0.1)


def test_where_no_more_are_listed_than_are_kept_no_guard_is_found():
    assert reached_by(np.ones(100), 2_000, 2_000, 100) == 0.0
    assert reached_by(np.ones(101), 2_000, 2_000, 100) == 1.0


@pytest.mark.slow(0.5)
def test_some_unanswered_requests_in_every_tick_do_not_let_the_list_grow():
    population = Population(PAGES, RATE, 0.0, PAGES // 50, seed=3)
    shard, _ = make_filled_shard(population, request_timeout=3.0, failed_retry=1.0)
    driver = Unanswering(shard, 3)
    sizes = []
    for _ in range(2000):
        driver.tick(TICK, RATE, 0.0)
        sizes.append(shard.selector.candidates)
    assert max(sizes[1000:]) < 5 * RATE
