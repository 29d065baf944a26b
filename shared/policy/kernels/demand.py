"""Loops over pages behind the demand curve and the exact multipliers."""

import math

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.kernels.special import unit_value_inverse
from shared.policy.kernels.threshold import threshold_staleness_from, threshold_staleness_scalar

Column = NDArray[np.float64]
Offsets = NDArray[np.int64]


SMALLEST_THRESHOLD = 1e-280
"""Stands for the limit Λ → 0, at which rates are finite only where every change is signalled."""


@compiled
def add_page_rates(
    rates: Column,
    importance: float,
    alpha: float,
    kappa: float,
    gamma: float,
    weight: float,
    grid: Column,
) -> None:
    """Add weight·f(V⁻¹(Λ)) of one page to ``rates``, for every Λ of the ascending ``grid``."""
    start = 0.0
    for point in range(grid.size):
        start, psi = threshold_staleness_from(alpha, kappa, gamma, grid[point] / importance, start)
        if start == math.inf:
            return
        rates[point] += weight / psi


@compiled
def threshold_rates(
    importance: float, alpha: float, kappa: float, gamma: float, grid: Column, rates: Column
) -> int:
    """Fill ``rates`` with f(V⁻¹(Λ)) of one page; how many thresholds, from the lowest, have any."""
    start = 0.0
    for point in range(grid.size):
        start, psi = threshold_staleness_from(alpha, kappa, gamma, grid[point] / importance, start)
        if start == math.inf:
            return point
        rates[point] = 1.0 / psi
    return grid.size


@compiled
def demand_of_pages(
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    weight: Column,
    grid: Column,
) -> Column:
    """Σ weight·f(V⁻¹(Λ)) over all pages, for every Λ of ``grid``."""
    total = np.zeros(grid.size)
    for page in range(importance.size):
        add_page_rates(
            total, importance[page], alpha[page], kappa[page], gamma[page], weight[page], grid
        )
    return total


@compiled
def demand_of_hosts(
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    offsets: Offsets,
    caps: Column,
    grid: Column,
) -> Column:
    """Σ_h min(k_h, Σ f(V⁻¹(Λ))); host h has the pages offsets[h]..offsets[h+1]."""
    total = np.zeros(grid.size)
    own = np.empty(grid.size)
    for host in range(caps.size):
        own[:] = 0.0
        for page in range(offsets[host], offsets[host + 1]):
            add_page_rates(own, importance[page], alpha[page], kappa[page], gamma[page], 1.0, grid)
        for point in range(grid.size):
            total[point] += min(caps[host], own[point])
    return total


@compiled
def histogram(
    log_value: Column, change_rate: Column, low: float, bins: int, width: float
) -> Column:
    """Columns (ΣΔ, ΣΔ·ln(μ/Δ)) of the pages in each bin of ln(μ/Δ); shape (2, bins)."""
    sums = np.zeros((2, bins))
    for page in range(log_value.size):
        place = min(int((log_value[page] - low) / width), bins - 1)
        sums[0, place] += change_rate[page]
        sums[1, place] += change_rate[page] * log_value[page]
    return sums


@compiled
def demand_of_histogram(weights: Column, log_values: Column, grid: Column) -> Column:
    """ΣΔ/h⁻¹(ΛΔ/μ) over classes of pages without signals."""
    total = np.zeros(grid.size)
    for group in range(weights.size):
        highest = math.exp(log_values[group])
        for point in range(grid.size):
            if grid[point] >= highest:
                break
            total[point] += weights[group] / unit_value_inverse(grid[point] / highest)
    return total


@compiled
def rate_of_pages(
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    staleness: Column,
    first: int,
    last: int,
    threshold: float,
) -> float:
    """Σ f(V⁻¹(Λ)) of pages first..last−1; ``staleness`` keeps each s* as the next call's start."""
    total = 0.0
    for page in range(first, last):
        start = staleness[page] if staleness[page] < math.inf else 0.0
        staleness[page], psi = threshold_staleness_from(
            alpha[page], kappa[page], gamma[page], threshold / importance[page], start
        )
        total += 1.0 / psi
    return total


@compiled
def rate_of_hosts(
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    staleness: Column,
    offsets: Offsets,
    caps: Column,
    threshold: float,
) -> float:
    """Σ_h min(k_h, Σ f(V⁻¹(Λ))) at one Λ."""
    total = 0.0
    for host in range(caps.size):
        own = rate_of_pages(
            importance,
            alpha,
            kappa,
            gamma,
            staleness,
            offsets[host],
            offsets[host + 1],
            threshold,
        )
        total += min(caps[host], own)
    return total


@compiled
def solve_hosts(
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    staleness: Column,
    offsets: Offsets,
    caps: Column,
    budget: float,
    guess: float,
    tolerance: float,
) -> tuple[float, float]:
    """The closest bracket Λ_low ≤ Λ_high with rate(Λ_low) ≥ budget ≥ rate(Λ_high).

    The two are equal once the rate is within ``tolerance`` of the budget, relative; they stay
    apart by rounding where the rate jumps over it.  Needs a budget that some Λ > 0 reaches.
    """
    low, high = 0.0, math.inf
    rate_low, rate_high = math.inf, 0.0
    threshold = guess
    stalled = 0
    for _ in range(400):
        rate = rate_of_hosts(importance, alpha, kappa, gamma, staleness, offsets, caps, threshold)
        if abs(rate - budget) <= tolerance * budget:
            return threshold, threshold
        if rate > budget:
            low, rate_low = threshold, rate
            stalled = max(stalled, 0) + 1
        else:
            high, rate_high = threshold, rate
            stalled = min(stalled, 0) - 1
        if high < math.inf and high - low <= 4e-16 * high:
            break
        threshold = _next_threshold(low, high, rate_low, rate_high, budget, abs(stalled) > 2)
        if threshold < SMALLEST_THRESHOLD:
            return SMALLEST_THRESHOLD, SMALLEST_THRESHOLD
    return low, high


@compiled
def _next_threshold(
    low: float, high: float, rate_low: float, rate_high: float, budget: float, halve: bool
) -> float:
    """A secant step in (ln Λ, ln rate), or a bisection, inside the bracket."""
    # outside a bracket: rate falls as Λ^-1/2 or faster, so these steps seldom fall short
    if high == math.inf:
        ratio = rate_low / budget
        return low * max(1.05, min(ratio * ratio, 100.0))
    if low == 0.0:
        ratio = budget / max(rate_high, 1e-2 * budget)
        return high / max(1.05, min(ratio * ratio, 100.0))
    middle = math.sqrt(low) * math.sqrt(high)
    if halve or not rate_high > 0.0:
        return middle
    share = math.log(rate_low / budget) / math.log(rate_low / rate_high)
    following = low * math.exp(share * math.log(high / low))
    if low < following < high:
        return following
    return middle


@compiled
def solve_each_host(
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    staleness: Column,
    offsets: Offsets,
    caps: Column,
    floor: float,
    brackets: Column,
) -> None:
    """Each host's own thresholds, shape (hosts, 2): ``floor`` where its cap does not bind."""
    everything = np.full(1, math.inf)
    for host in range(caps.size):
        first, last = offsets[host], offsets[host + 1]
        brackets[host, 0] = brackets[host, 1] = floor
        if caps[host] == math.inf:
            continue
        if caps[host] <= 0.0:
            brackets[host, 0] = brackets[host, 1] = math.inf
            continue
        own = rate_of_pages(importance, alpha, kappa, gamma, staleness, first, last, floor)
        if own > caps[host]:
            low, high = solve_hosts(
                importance[first:last],
                alpha[first:last],
                kappa[first:last],
                gamma[first:last],
                staleness[first:last],
                np.array([0, last - first], dtype=np.int64),
                everything,
                caps[host],
                max(floor, 1e-9),
                1e-13,
            )
            brackets[host, 0] = max(low, floor)
            brackets[host, 1] = max(high, floor)


@compiled
def fill_rates(
    rates: Column,
    fresh: Column,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    threshold: Column,
) -> None:
    """Crawl rate of each page at its threshold, and the share of time its copy is then fresh."""
    for page in range(rates.size):
        rates[page] = 0.0
        fresh[page] = 0.0
        if threshold[page] == math.inf:
            continue
        target = threshold[page] / importance[page]
        staleness, psi = threshold_staleness_scalar(alpha[page], kappa[page], gamma[page], target)
        if staleness < math.inf:
            rates[page] = 1.0 / psi
            fresh[page] = target / psi + math.exp(-staleness)
