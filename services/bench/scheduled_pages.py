"""A shard of synthetic pages in the middle of its life, for the benchmarks of the scheduler.

Pages are as in the design's study: change rates over two and a half decades around R/N, log-normal
importance, a fifth with signals of any recall and precision. Each was last crawled when the
optimal policy would have done it, so the shard needs no time to settle.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.hosts import list_pages
from services.scheduler.state.packing import load_rates, load_updates
from services.scheduler.state.rows import ACTIVE, Rows, clear
from services.scheduler.state.rules import ClassRules, PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from shared.policy.compiled import compiled
from shared.policy.inverse import threshold_staleness
from shared.policy.model import Column
from shared.units import SECONDS_PER_DAY

ORIGIN: Final = 1.7e9
"""Clock time at which a benchmark begins."""

_SIGNALLED: Final = 0.2
_SLICE: Final = 200_000
_SAMPLE: Final = 200_000
_UNLIMITED: Final = 1e9
_IDS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Population:
    """What pages are drawn from."""

    pages: int
    crawls_per_second: float
    signals_per_second: float
    hosts: int
    seed: int = 0

    def draw(self, count: int, seed: int) -> tuple[Column, Column, Column, Column]:
        """(μ, α, κ, γ) of so many pages, per day."""
        random = np.random.default_rng((self.seed, seed))
        usual = self.crawls_per_second / self.pages * SECONDS_PER_DAY
        change_rate = usual * 10 ** random.uniform(-1.5, 1.0, count)
        importance = np.exp(random.normal(0, 1, count))
        signalled = random.random(count) < _SIGNALLED
        recall = np.where(signalled, np.clip(random.beta(0.5, 0.5, count), 0.02, 0.98), 0.0)
        noise = np.where(signalled, random.uniform(0.05, 1.0, count), 0.0)
        per_page = self.signals_per_second / self.pages * SECONDS_PER_DAY
        missing = per_page - (recall * change_rate).sum() / count
        noise *= max(missing, 0.2 * per_page) * count / max(noise.sum(), 1e-300)
        alpha = (1.0 - recall) * change_rate
        gamma = recall * change_rate + noise
        kappa = np.zeros(count)
        noisy = noise > 0.0
        kappa[noisy] = np.log1p((recall * change_rate)[noisy] / noise[noisy])
        return importance, alpha, kappa, gamma


def multiplier_of(population: Population) -> float:
    """λ at which the pages ask for just the budget, from a sample of them."""
    count = min(_SAMPLE, population.pages)
    columns = population.draw(count, 0)
    wanted = population.crawls_per_second * SECONDS_PER_DAY * count / population.pages

    def excess(log_multiplier: float) -> float:
        _, rate = threshold_staleness(*columns, math.exp(log_multiplier))
        return math.log(max(float(rate.sum()), 1e-300) / wanted)

    middle = math.log(population.pages / population.crawls_per_second / SECONDS_PER_DAY)
    return math.exp(brentq(excess, middle - 12, middle + 6, xtol=1e-5))


@compiled
def _stationary(
    rows: Rows, staleness: Column, random: np.random.Generator, now: float, longest_days: float
) -> None:
    """Last crawls and signals since, as at a random moment between two crawls."""
    for row in range(rows.size):
        page = rows[row]
        alpha, gamma = np.float64(page.alpha), np.float64(page.gamma)
        iota = staleness[row] / alpha
        if not iota < longest_days:
            iota = longest_days
        days, signals = iota * random.random(), 0
        if gamma > 0.0:
            per_signal = np.float64(page.kappa) / alpha
            for _ in range(400):
                days = iota * random.random()
                signals = random.poisson(min(gamma * days, 1e6))
                if days + per_signal * signals < iota:
                    break
            else:
                days, signals = 0.0, 0
        page.last_crawled_at = now - days * SECONDS_PER_DAY
        page.signals = signals


def make_filled_shard(
    population: Population,
    host_rates: NDArray[np.float64] | None = None,
    *,
    request_timeout: float = 120.0,
    failed_retry: float = 300.0,
    shares: tuple[float, ...] = (),
    classes: tuple[ClassRules, ...] = (),
) -> tuple[Shard, float]:
    """A shard of a population, and λ.

    Args:
        population: what it has.
        host_rates: crawls a second of each host; None: as many as they like.
        request_timeout: seconds until a request counts as unanswered.
        failed_retry: seconds until its page is tried again.
        shares: parts of the slots, by queue.
        classes: that operators name.
    """
    picking = PickingRules(request_timeout, 1.0, shares=shares)
    rules = ShardRules(picking, 0.0, failed_retry, math.inf, _UNLIMITED, classes)
    shard = make_shard(0, rules, population.pages)
    for number in range(population.hosts):
        shard.hosts.intern(f"h{number}.example")
    if host_rates is not None:
        shard.hosts.rows["rate"][: population.hosts] = host_rates
    multiplier = multiplier_of(population)
    shard.signal_times.reserve(int(_SIGNALLED * population.pages * 1.01) + 100)
    for begin in range(0, population.pages, _SLICE):
        end = min(begin + _SLICE, population.pages)
        _add_slice(shard, population, multiplier, begin, end)
    shard.used = population.pages
    shard.lookup.index(population.pages)
    shard.is_caught_up = True
    return shard, multiplier


def _add_slice(
    shard: Shard, population: Population, multiplier: float, begin: int, end: int
) -> None:
    """Pages as a snapshot has them: in the order of their ids."""
    count = end - begin
    importance, alpha, kappa, gamma = population.draw(count, begin + 1)
    rows, records = shard.pages[begin:end], shard.records[begin:end]
    clear(rows, records)
    rows["importance"], rows["kappa"], rows["gamma"] = importance, kappa, gamma
    rows["status"] = ACTIVE
    random = np.random.default_rng((population.seed, begin, 1))
    rows["host"] = random.integers(0, population.hosts, count)
    load_rates(rows, records, alpha, np.ones(count, np.float32), alpha)
    load_updates(records, ORIGIN - random.random(count) * 1e8)
    staleness, _ = threshold_staleness(importance, alpha, kappa, gamma, multiplier)
    longest = 1000.0 * population.pages / population.crawls_per_second / SECONDS_PER_DAY
    _stationary(rows, staleness, random, ORIGIN, longest)
    numbers = np.arange(begin, end, dtype=np.int32)
    signalled = numbers[gamma > 0.0]
    crawled_at = shard.pages["last_crawled_at"][signalled]
    passed = random.random(signalled.size) * (ORIGIN - crawled_at)
    first_slot = np.zeros(signalled.size, np.int8)
    shard.signal_times.note(signalled, first_slot, crawled_at + passed)
    list_pages(shard.pages, shard.records, shard.hosts.rows, numbers)
    step = _IDS // population.pages
    shard.lookup.ids[begin:end] = numbers * np.int64(step) + random.integers(0, step, count)
