"""The learning versions converge to the policies that know the change rates."""

import numpy as np
import pytest

from shared.policy.lambdacrawl.binary import binary_lambda_crawl_with_floor
from shared.policy.lambdacrawl.costs import harmonic_cost
from shared.policy.lambdacrawl.harmonic import (
    CrawlRates,
    lambda_crawl,
    lambda_crawl_approximate,
)
from shared.policy.lambdacrawl.learning import (
    ObservedHistory,
    binary_learn_and_crawl,
    lambda_learn_and_crawl,
    lambda_learn_and_crawl_approximate,
    learned_change_rates,
)


class World:
    """Pages that change at random and are crawled by a policy, a day at a time."""

    def __init__(self, pages: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.importance = self.rng.pareto(1.2, pages) + 0.1
        self.change_rate = 10 ** self.rng.uniform(-1.5, 0.5, pages)
        self.complete = self.rng.random(pages) < 0.3
        self.records: list[list[tuple[float, bool]]] = [[] for _ in range(pages)]
        self.last = np.zeros(pages)
        self.signals = np.zeros(pages)
        self.day = 0

    def live(self, policy: CrawlRates) -> None:
        """One day under `policy`; crawls of pages with complete signals leave no record."""
        self.signals += self.rng.poisson(self.change_rate)
        for page, crawls in enumerate(self.rng.poisson(policy.rates)):
            for time in np.sort(self.day + self.rng.random(crawls)):
                interval = time - self.last[page]
                changed = self.rng.random() < -np.expm1(-self.change_rate[page] * interval)
                self.records[page].append((interval, changed))
                self.last[page] = time
        self.day += 1

    def history(self) -> ObservedHistory:
        offsets = np.cumsum([0] + [len(records) for records in self.records])
        flat = [record for records in self.records for record in records]
        return ObservedHistory(
            np.array([record[0] for record in flat]),
            np.array([record[1] for record in flat], dtype=np.uint8),
            offsets,
            self.signals,
            np.full(offsets.size - 1, float(self.day)),
        )

    def cost(self, policy: CrawlRates) -> float:
        rates = np.where(self.complete, np.minimum(policy.rates, self.change_rate), policy.rates)
        return harmonic_cost(self.importance, self.change_rate, rates, self.complete)


@pytest.mark.parametrize(
    ("learn", "known"),
    [
        (lambda_learn_and_crawl, lambda_crawl),
        (lambda_learn_and_crawl_approximate, lambda_crawl_approximate),
    ],
)
def test_costs_near_those_of_known_rates(learn, known):
    world = World(300, seed=1)
    bandwidth = 120.0
    first = policy = learn(world.importance, world.complete, world.history(), bandwidth)
    for _ in range(60):
        policy = learn(world.importance, world.complete, world.history(), bandwidth)
        world.live(policy)
    best = world.cost(known(world.importance, world.change_rate, world.complete, bandwidth))
    assert world.cost(policy) < world.cost(first)
    assert world.cost(policy) < 1.06 * best


def test_binary_version_learns_from_crawls_alone():
    world = World(300, seed=2)
    for _ in range(60):
        policy = binary_learn_and_crawl(world.importance, world.history(), 120.0)
        world.live(policy)
    known = binary_lambda_crawl_with_floor(world.importance, world.change_rate, 120.0)
    assert np.abs(policy.rates - known.rates).sum() < 0.35 * 120.0
    assert policy.rates.min() >= 0.4 * 120.0 / 300


def test_each_class_has_its_estimator():
    history = ObservedHistory(
        np.array([1.0]), np.array([1], np.uint8), np.array([0, 1, 1]), np.array([7, 3]), 9.5
    )
    rates = learned_change_rates(history, [False, True])
    assert rates[1] == 0.35
    assert rates[0] == pytest.approx(1.881227, rel=1e-6)
