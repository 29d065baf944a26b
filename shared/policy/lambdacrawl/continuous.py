"""The optimal continuous policy without signals: the Baseline of [N], equation 5.

Each page is crawled at *even* intervals 1/ξ, which is better than at random times of rate ξ:

    maximise Σ G(ξ_i), G(ξ) = (μ/Δ) ξ (1 − e^{−Δ/ξ}), subject to Σ ξ_i = R

At the optimum every crawled page has the same crawl value at the end of its interval,
(μ/Δ) h(Δ/ξ) = Λ with h(u) = 1 − (1 + u)e^{−u}, so ξ = Δ/h⁻¹(ΛΔ/μ); pages with μ/Δ ≤ Λ are never
crawled. Rates per day.
"""

import math
from typing import Any

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.kernels.special import unit_value_inverse
from shared.policy.lambdacrawl.harmonic import CrawlRates
from shared.policy.lambdacrawl.inputs import Floats, checked_bandwidth, checked_pages

LOG_RESIDUAL = 1e-15
"""The solver stops once ln Σξ is this close to ln R."""


def optimal_continuous_rates(importance: Any, change_rate: Any, bandwidth: float) -> CrawlRates:
    """Baseline: the rates ξ, and the threshold Λ as multiplier, that keep requests freshest.

    `importance` and `change_rate` (per day) are (pages,); `bandwidth` in crawls per day.

    Raises ValueError on malformed columns or bandwidth, or if no page can use a crawl.
    """
    pages = checked_pages(importance, change_rate)
    budget = checked_bandwidth(bandwidth)
    used = (pages.importance > 0) & (pages.change_rate > 0)
    if not used.any():
        raise ValueError("no page has both importance and changes, so no crawl is of use")
    changes = pages.change_rate[used]
    worth = pages.importance[used] / changes
    threshold = _solve_threshold(worth, changes, budget)
    rates = np.zeros(used.size)
    rates[used] = _even_rates(worth, changes, threshold)
    # Where Λ nearly equals the highest μ/Δ, no float between them may spend exactly R.
    return CrawlRates(rates * (budget / rates.sum()), threshold)


def continuous_freshness(importance: Any, change_rate: Any, rates: Any) -> Floats:
    """G(ξ) of each page, shape (pages,): importance times the share of time it is fresh.

    `rates` (pages,) are crawls per day at even intervals. A page that never changes is always
    fresh, one that is never crawled never.

    Raises ValueError on malformed columns.
    """
    pages = checked_pages(importance, change_rate)
    crawls = checked_pages(pages.importance, rates).change_rate
    with np.errstate(divide="ignore", over="ignore"):
        gap = np.divide(
            pages.change_rate, crawls, out=np.full(crawls.shape, np.inf), where=crawls > 0
        )
    share = np.divide(-np.expm1(-gap), gap, out=np.ones(gap.shape), where=gap > 0)
    share[pages.change_rate == 0] = 1.0
    return np.asarray(pages.importance * share)


@compiled
def _even_rates(worth: Floats, change_rate: Floats, threshold: float) -> Floats:
    rates = np.zeros(worth.size)
    for page in range(worth.size):
        if worth[page] > threshold:
            rates[page] = change_rate[page] / unit_value_inverse(threshold / worth[page])
    return rates


@compiled
def _total_rate(worth: Floats, change_rate: Floats, threshold: float) -> tuple[float, float]:
    """Σ ξ under Λ, and −∂(Σ ξ)/∂(ln Λ), summed in blocks."""
    total = slope = 0.0
    for begin in range(0, worth.size, 512):
        block_total = block_slope = 0.0
        for page in range(begin, min(begin + 512, worth.size)):
            level = threshold / worth[page]
            if level < 1.0:
                u = unit_value_inverse(level)
                rate = change_rate[page] / u
                block_total += rate
                block_slope += rate * level * math.exp(u) / (u * u)
        total += block_total
        slope += block_slope
    return total, slope


@compiled
def _solve_threshold(worth: Floats, change_rate: Floats, bandwidth: float) -> float:
    """Λ with Σ ξ(Λ) = R, or the next below: Newton in logarithms inside a bracket.

    The start is exact where crawls are frequent: h(u) ≈ u²/2, so ξ ≈ √(μΔ/(2Λ)).
    """
    roots = highest = 0.0
    for page in range(worth.size):
        roots += change_rate[page] * math.sqrt(0.5 * worth[page])
        highest = max(highest, worth[page])
    low, high = -math.inf, math.log(highest)
    point = min(2.0 * math.log(roots / bandwidth), high - 0.1)
    for _ in range(300):
        total, slope = _total_rate(worth, change_rate, math.exp(point))
        excess = math.log(total / bandwidth) if total > 0.0 else -math.inf
        if excess >= -LOG_RESIDUAL:
            low = point
        if excess <= LOG_RESIDUAL:
            high = point
        if low == high:
            break
        ahead = point + excess * total / slope if slope > 0.0 else math.nan
        if not low < ahead < high:
            ahead = 0.5 * (low + high) if low > -math.inf else high - 2.0
        if ahead in (low, high, point):
            break
        point = ahead
    return math.exp(low)
