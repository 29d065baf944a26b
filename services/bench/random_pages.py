"""Random pages, states and populations, for the benchmarks and the tests of the policy library."""

import math

import numpy as np
from numpy.typing import NDArray

from shared.policy.model import Column, PageParameters


def random_states(count: int, seed: int, *, most_terms: int = 150) -> NDArray[np.float64]:
    """Rows (α, κ, γ, t, n): γ/α from 1e-6 to 1e6, precision from 1e-12 to 1−1e-9, n to 1,000.

    Few have more than ``most_terms`` terms, because the reference's time grows with their square.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, ...]] = []
    while len(rows) < count:
        alpha = 10 ** rng.uniform(-6, 2)
        gamma = alpha * 10 ** rng.uniform(-6, 6)
        if rng.random() < 0.5:
            kappa = -math.log1p(-(10 ** rng.uniform(-12, 0)) * (1 - 1e-9))
        else:
            kappa = -math.log(10 ** rng.uniform(-9, -1))
        signals = int(rng.choice([0, 0, 1, 2, 3, 5, 10, 30, 100]))
        elapsed = 10 ** rng.uniform(-5, 1.5) / alpha
        if rng.random() < 0.3:
            elapsed = 10 ** rng.uniform(-3, 3) / gamma
        if rng.random() < 0.003:
            signals, elapsed = 1000, min(elapsed, 0.9 * kappa / alpha)
        elif signals + math.floor(elapsed * alpha / kappa) > most_terms:
            continue
        rows.append((alpha, kappa, gamma, elapsed, float(signals)))
    return np.array(rows)


def random_population(
    pages: int, hosts: int, seed: int, *, signalled_share: float = 0.2
) -> tuple[PageParameters, NDArray[np.int32], Column, float]:
    """(parameters, host_index, host_caps, budget): heavy tails, a tenth of the hosts limited."""
    rng = np.random.default_rng(seed)
    change_rate = rng.lognormal(-3, 1.5, pages)
    signalled = rng.random(pages) < signalled_share
    recall = np.where(signalled, rng.beta(0.5, 0.5, pages).clip(0.01, 0.999), 0.0)
    noise = np.where(signalled, rng.lognormal(-4, 1.5, pages), 0.0)
    importance = rng.pareto(1.5, pages) + 0.01
    host_index = (hosts * rng.random(pages) ** 2).astype(np.int32)
    budget = 0.2 * float(change_rate.sum())
    caps = np.full(hosts, np.inf)
    capped = rng.random(hosts) < 0.1
    sizes = np.bincount(host_index, minlength=hosts)
    caps[capped] = 0.3 * budget / pages * sizes[capped] + 1e-3
    return (
        PageParameters.from_rates(importance, change_rate, recall, noise),
        host_index,
        caps,
        budget,
    )


def random_ages(params: PageParameters, seed: int) -> tuple[Column, Column]:
    """(days since the last crawl, signals since): about one change a page, Poisson signals."""
    rng = np.random.default_rng(seed)
    elapsed = rng.exponential(1.0 / params.change_rate)
    return elapsed, rng.poisson(params.gamma * elapsed).astype(np.float64)
