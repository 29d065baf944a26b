"""Pages that are new, or were not answered, do not make all the others wait on the list."""

import numpy as np
import pytest

from services.bench.scheduled_pages import ORIGIN, Population, make_filled_shard
from services.bench.scheduler_driver import Driver
from services.scheduler.state.rows import NEVER, Rows

PAGES = 200_000
RATE = 400.0
TICK = 0.1


def shard_of_equals(*, never_crawled):
    """All pages were crawled just now, a part never: what an import looks like."""
    population = Population(PAGES, RATE, 0.0, PAGES // 50, seed=3)
    shard, multiplier = make_filled_shard(population, request_timeout=3.0)
    pages = shard.pages[:PAGES]
    pages["last_crawled_at"] = ORIGIN
    pages["signals"] = 0
    pages["last_crawled_at"][: round(never_crawled * PAGES)] = NEVER
    return Driver(shard, population, 3), multiplier


class Unanswering(Driver):
    """Loses one answer of twenty."""

    def pick(self, slots: np.ndarray, rate: float) -> Rows:
        picks = super().pick(slots, rate)
        at, crawls = self._waiting[-1]
        self._waiting[-1] = (at, crawls[np.arange(crawls.size) % 20 != 0])
        return picks


@pytest.mark.slow(3)
def test_while_new_pages_take_every_slot_few_others_are_listed():
    driver, _ = shard_of_equals(never_crawled=0.2)
    selector = driver.shard.selector
    listed = []
    for _ in range(400):
        picks = driver.tick(TICK, RATE, 0.0)
        assert (picks["tier"] > 0).all()
        listed.append(selector.candidates - int(selector._state["urgent"]))
    # All pages come up at once; some seconds of crawling stay listed.
    assert max(listed[300:]) < 60 * RATE < PAGES / 4


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


@pytest.mark.slow(0.5)
def test_some_unanswered_requests_in_every_tick_do_not_let_the_list_grow():
    population = Population(PAGES, RATE, 0.0, PAGES // 50, seed=3)
    shard, _ = make_filled_shard(population, request_timeout=3.0, failed_retry=1.0)
    driver = Unanswering(shard, population, 3)
    sizes = []
    for _ in range(2000):
        driver.tick(TICK, RATE, 0.0)
        sizes.append(shard.selector.candidates)
    assert max(sizes[1000:]) < 5 * RATE
