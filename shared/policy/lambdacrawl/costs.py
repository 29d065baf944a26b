"""What a policy of random crawls costs: [K] propositions 1 and 4 and the binary formulas.

Both costs are long-run averages, summed over pages, of importance times a penalty on the number n
of changes not yet crawled: H(n) = 1 + 1/2 + … + 1/n for the harmonic cost, 1 if n > 0 for the
binary cost. A page without complete signals is crawled at Poisson times of rate ρ; a page with
complete signals on each signal with probability p, so at rate ρ = pΔ. A policy is therefore one
column of rates ρ, per day.
"""

from typing import Any

import numpy as np

from shared.policy.lambdacrawl.inputs import Floats, Pages, checked_pages, checked_rates


def crawl_probabilities(rates: Any, change_rate: Any) -> Floats:
    """p = ρ/Δ of pages with complete signals, at most 1; 1 where Δ = 0. Arrays broadcast."""
    crawls, changes = np.broadcast_arrays(
        np.asarray(rates, dtype=np.float64), np.asarray(change_rate, dtype=np.float64)
    )
    shares = np.divide(crawls, changes, out=np.ones(crawls.shape), where=changes > 0)
    return np.asarray(np.minimum(shares, 1.0), dtype=np.float64)


def harmonic_costs(importance: Any, change_rate: Any, rates: Any, complete: Any = None) -> Floats:
    """Harmonic cost of each page, shape (pages,).

    μ ln(1 + Δ/ρ) without complete signals ([K] proposition 1), −μ ln p with them (proposition 4).
    Infinite where a page that changes and matters is never crawled, 0 where μ or Δ is 0.

    Raises ValueError on malformed columns.
    """
    pages = checked_pages(importance, change_rate, complete)
    crawls = checked_rates(rates, pages)
    with np.errstate(divide="ignore"):
        missed = np.divide(
            pages.change_rate, crawls, out=np.full(crawls.shape, np.inf), where=crawls > 0
        )
        penalty = np.where(
            pages.complete,
            -np.log(crawl_probabilities(crawls, pages.change_rate)),
            np.log1p(missed),
        )
    return _weighted(pages, penalty)


def binary_costs(importance: Any, change_rate: Any, rates: Any, complete: Any = None) -> Floats:
    """Binary cost of each page, shape (pages,): importance times the share of time it is stale.

    μΔ/(Δ + ρ) without complete signals, μ(1 − p) with them ([K] supplement, equations 12 and 13).

    Raises ValueError on malformed columns.
    """
    pages = checked_pages(importance, change_rate, complete)
    crawls = checked_rates(rates, pages)
    total = pages.change_rate + crawls
    stale = np.divide(pages.change_rate, total, out=np.zeros(total.shape), where=total > 0)
    penalty = np.where(pages.complete, 1.0 - crawl_probabilities(crawls, pages.change_rate), stale)
    return _weighted(pages, penalty)


def harmonic_cost(importance: Any, change_rate: Any, rates: Any, complete: Any = None) -> float:
    """J_h, the sum of `harmonic_costs`: [K] equation 8."""
    return float(harmonic_costs(importance, change_rate, rates, complete).sum())


def binary_cost(importance: Any, change_rate: Any, rates: Any, complete: Any = None) -> float:
    """J_b, the sum of `binary_costs`."""
    return float(binary_costs(importance, change_rate, rates, complete).sum())


def _weighted(pages: Pages, penalty: Floats) -> Floats:
    counts = (pages.importance > 0) & (pages.change_rate > 0)
    out = np.zeros(penalty.shape)
    return np.asarray(np.multiply(pages.importance, penalty, out=out, where=counts))
