"""What is said to be got by chance is what one gets who tries it out."""

import numpy as np
import pytest

from services.demo import chance

PAGES, RATE, SECONDS = 60, 4.0, 40.0
INTERVAL = PAGES / RATE


def visits_in_turn(rng):
    """When one page is fetched: its place in the order is drawn."""
    return np.arange(rng.integers(PAGES) + rng.random(), SECONDS * RATE, PAGES) / RATE


def visits_at_random(rng):
    return np.sort(rng.uniform(0.0, SECONDS, rng.poisson(SECONDS / INTERVAL)))


def visits_once(rng):
    return visits_in_turn(rng)[:1]


@pytest.mark.parametrize("at", [6.0, 14.0, 31.0])
@pytest.mark.parametrize("since", [1.0, 9.0, 20.0])
def test_the_formulas_are_what_drawn_orders_give(at, since):
    since = min(since, at)
    rng = np.random.default_rng(3)
    for visits, said in (
        (visits_in_turn, chance.in_turn(since, INTERVAL)),
        (visits_at_random, chance.at_random(since, INTERVAL)),
        (visits_once, chance.once(since, at, INTERVAL)),
    ):
        tried = []
        for _ in range(3000):
            before = visits(rng)
            before = before[before <= at]
            tried.append(before.size > 0 and before[-1] > at - since)
        assert np.mean(tried) == pytest.approx(said, abs=0.03), visits.__name__
