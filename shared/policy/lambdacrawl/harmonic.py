"""LambdaCrawl: the crawl rates that minimise the harmonic cost, from their KKT conditions.

[K] searches over the split of the bandwidth between pages with and without complete signals, and
within the split over a multiplier. One multiplier λ serves both classes (∂J/∂ρ = −λ on every page
that is not at a bound), so no search over the split is needed:

    without complete signals   ρ = 2(μ/λ)/(1 + √(1 + 4μ/(λΔ)))          ([K] proposition 2)
    with complete signals      ρ = min(Δ, μ/λ), that is p = min(1, μ/(λΔ)) ([K] proposition 5)

and λ from Σ ρ = R, by Newton's method on ln Σρ as a function of ln λ inside a bracket. Pages
without importance or changes get no crawls. Rates per day.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from shared.policy.compiled import compiled
from shared.policy.lambdacrawl.inputs import (
    Floats,
    Mask,
    Pages,
    checked_bandwidth,
    checked_pages,
)

LOG_RESIDUAL = 1e-15
"""Newton stops once ln Σρ is this close to ln R: rounding is then all that remains."""


class CrawlRates(NamedTuple):
    """A policy and the multiplier that it came from."""

    rates: Floats
    """ρ, crawls per day, shape (pages,); of pages with complete signals ρ = pΔ."""
    multiplier: float
    """λ: what one more crawl a day would take off the cost; 0 if bandwidth is left over."""


def lambda_crawl(importance: Any, change_rate: Any, complete: Any, bandwidth: float) -> CrawlRates:
    """LC: minimise the harmonic cost of pages with mixed observability ([K] problem 3).

    `importance`, `change_rate` (per day), `complete` (bool) are (pages,); `bandwidth` R in crawls
    per day. Σ rates = R, unless every page has complete signals and Σ Δ ≤ R: then every change is
    crawled.

    Raises ValueError on malformed columns or bandwidth.
    """
    pages = checked_pages(importance, change_rate, complete)
    return _solved(pages, checked_bandwidth(bandwidth))


def lambda_crawl_incomplete(importance: Any, change_rate: Any, bandwidth: float) -> CrawlRates:
    """LC-IncomplObs: `lambda_crawl` with no page's signals complete ([K] problem 1)."""
    return lambda_crawl(importance, change_rate, None, bandwidth)


def lambda_crawl_complete(importance: Any, change_rate: Any, bandwidth: float) -> CrawlRates:
    """LC-ComplObs: `lambda_crawl` with every page's signals complete ([K] problem 2)."""
    every = np.ones(np.shape(importance), dtype=np.bool_)
    return lambda_crawl(importance, change_rate, every, bandwidth)


def lambda_crawl_approximate(
    importance: Any, change_rate: Any, complete: Any, bandwidth: float
) -> CrawlRates:
    """LCA: pages without complete signals share their part R⁻ by importance, ρ = μR⁻/Σμ.

    [K] proposition 9, put in place of the exact rates in algorithm 3: R⁻ is the split of R whose
    harmonic cost is least, given that form, and the rest goes to pages with complete signals as in
    `lambda_crawl`. Change rates of pages without complete signals matter for the split alone.

    Raises ValueError on malformed columns or bandwidth.
    """
    pages = checked_pages(importance, change_rate, complete)
    budget = checked_bandwidth(bandwidth)
    alive = (pages.importance > 0) & (pages.change_rate > 0)
    polled, signalled = alive & ~pages.complete, alive & pages.complete
    weight = float(pages.importance[polled].sum())
    if weight == 0:
        return _solved(pages, budget)
    shared = _only(pages, polled)
    exact = _only(pages, signalled)
    share = shared.importance / weight
    part, multiplier = _split(shared, share, exact, budget)
    rates = np.zeros(alive.size)
    rates[polled] = share * part
    rates[signalled] = _rates_under(exact, multiplier)
    return CrawlRates(rates, multiplier)


def _split(shared: Pages, share: Floats, exact: Pages, budget: float) -> tuple[float, float]:
    """R⁻, and λ of the pages with complete signals at R − R⁻: [K] algorithm 3 in one dimension.

    The slope of the cost in R⁻ falls with R⁻, λ rises: they cross once, at the least cost.
    """

    def slope(part: float) -> float:
        changes, rates = shared.change_rate, share * part
        return float((shared.importance * changes / (changes + rates)).sum() / part)

    def log_gap(log_part: float) -> float:
        rest = budget - math.exp(log_part)
        multiplier = solve_multiplier(*exact, rest) if rest > 0 else math.inf
        gap = math.log(slope(math.exp(log_part))) - math.log(max(multiplier, 1e-300))
        return max(gap, -1e3)

    most = math.log(budget)
    if exact.importance.size == 0 or log_gap(most) >= 0:
        # What the others are worth is below the rounding of R.
        return budget, slope(budget)
    least = math.log(max(budget - float(exact.change_rate.sum()), budget * 1e-18))
    if log_gap(least) <= 0:
        part = math.exp(least)
    else:
        part = min(math.exp(brentq(log_gap, least, most, xtol=1e-13, rtol=1e-14)), budget)
    return part, solve_multiplier(*exact, budget - part)


def _only(pages: Pages, chosen: Mask) -> Pages:
    importance, change_rate, complete = pages
    return Pages(importance[chosen], change_rate[chosen], complete[chosen])


def _solved(pages: Pages, bandwidth: float) -> CrawlRates:
    multiplier = solve_multiplier(*pages, bandwidth)
    return CrawlRates(_rates_under(pages, multiplier), multiplier)


def _rates_under(pages: Pages, multiplier: float) -> Floats:
    rates = np.empty(pages.importance.shape)
    fill_rates(*pages, multiplier, rates)
    return rates


@compiled
def page_rate(importance: float, change_rate: float, complete: bool, multiplier: float) -> float:
    """ρ of one page under λ > 0, per day; 0 without importance or changes."""
    if importance <= 0.0 or change_rate <= 0.0:
        return 0.0
    worth = importance / multiplier
    if complete:
        return min(worth, change_rate)
    return 2.0 * worth / (1.0 + math.sqrt(1.0 + 4.0 * worth / change_rate))


@compiled
def fill_rates(
    importance: Floats, change_rate: Floats, complete: Mask, multiplier: float, rates: Floats
) -> None:
    """Write every page's ρ under λ to `rates`; λ = 0 crawls every change of complete pages."""
    for page in range(rates.size):
        if multiplier > 0.0:
            rates[page] = page_rate(importance[page], change_rate[page], complete[page], multiplier)
        else:
            rates[page] = change_rate[page] if importance[page] > 0.0 else 0.0


@compiled
def total_rate(
    importance: Floats, change_rate: Floats, complete: Mask, multiplier: float
) -> tuple[float, float]:
    """Σ ρ under λ, and −∂(Σ ρ)/∂(ln λ). Summed in blocks, so that a million terms keep digits."""
    total = slope = 0.0
    for begin in range(0, importance.size, 512):
        block_total = block_slope = 0.0
        for page in range(begin, min(begin + 512, importance.size)):
            changes = change_rate[page]
            worth = importance[page] / multiplier
            if not (changes > 0.0 and worth > 0.0):
                continue
            if complete[page]:
                if worth < changes:
                    block_total += worth
                    block_slope += worth
                else:
                    block_total += changes
            else:
                root = math.sqrt(1.0 + 4.0 * worth / changes)
                block_total += 2.0 * worth / (1.0 + root)
                block_slope += worth / root
        total += block_total
        slope += block_slope
    return total, slope


@compiled
def solve_multiplier(
    importance: Floats, change_rate: Floats, complete: Mask, bandwidth: float
) -> float:
    """λ with Σ ρ(λ) = `bandwidth`; 0 if no λ > 0 spends it all.

    ρ ≤ μ/λ, so the root is at most Σμ/R; Newton starts there and the bracket opens downwards.
    """
    weight = enough = 0.0
    bounded = True
    for page in range(importance.size):
        if importance[page] > 0.0 and change_rate[page] > 0.0:
            weight += importance[page]
            enough += change_rate[page]
            bounded = bounded and complete[page]
    if bounded and enough <= bandwidth:
        return 0.0
    low, high = -math.inf, math.log(weight) - math.log(bandwidth)
    point = high
    for _ in range(200):
        total, slope = total_rate(importance, change_rate, complete, math.exp(point))
        excess = math.log(total / bandwidth)
        if excess >= 0.0:
            low = point
        if excess <= 0.0:
            high = point
        if abs(excess) <= LOG_RESIDUAL:
            break
        ahead = point + excess * total / slope if slope > 0.0 else -math.inf
        if not low < ahead < high:
            ahead = 0.5 * (low + high) if low > -math.inf else high - 2.0
        if abs(ahead - point) <= 1e-16 * abs(point):
            break
        point = ahead
    return math.exp(point)
