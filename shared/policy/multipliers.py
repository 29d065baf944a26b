"""λ₀ and the hosts' multipliers: the thresholds at which all crawls fit their limits.

A page of host i is crawled when its value reaches λ₀ + λ_i.  λ₀ makes the demand meet the budget;
λ_i ≥ 0 is positive only where the host's own limit binds [B; N section 3].
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from shared.policy.demand import DemandLine, group_by_host
from shared.policy.kernels.demand import (
    SMALLEST_THRESHOLD,
    fill_rates,
    solve_each_host,
    solve_hosts,
)
from shared.policy.model import Column, PageParameters

_TOLERANCE = 1e-13

_FARTHEST = 1e-12
"""A λ₀ this far below the grid means that the budget is not what limits the crawls."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The optimal static policy of a set of pages.

    ``multiplier`` λ₀; ``host_multipliers`` λ_i, one a host; ``rates`` crawls per day, one a page;
    ``objective`` Σμ·(share of time the page's copy is fresh), pages that never change included.
    """

    multiplier: float
    host_multipliers: Column
    rates: Column
    objective: float


def solve_multiplier(grid: Column, demand: Column, budget: float) -> float:
    """λ₀ with D(λ₀) = ``budget`` (crawls per day), from a demand curve on an ascending ``grid``.

    A budget of 0 gives infinity (crawl nothing); one that no threshold uses up gives 0 (crawl all
    that the hosts allow).  Raises ``ValueError`` for a grid and curve that do not fit.
    """
    if len(grid) != len(demand) or len(grid) < 2:
        raise ValueError(
            f"a curve of {len(demand)} points on a grid of {len(grid)}: give both the same "
            "length, 2 or more"
        )
    if not budget > 0.0:
        return np.inf
    falling = np.minimum.accumulate(np.maximum(demand, 0.0))
    if falling[0] <= 0.0:
        return 0.0
    line = DemandLine(grid, falling)

    def excess(log_threshold: float) -> float:
        return float(line.at(np.array([np.exp(log_threshold)]))[0]) / budget - 1.0

    if falling[0] < budget:
        farthest = np.log(grid[0]) + np.log(_FARTHEST)
        if excess(farthest) < 0.0:
            return 0.0
        return float(np.exp(falling_root(excess, farthest, np.log(grid[0]), 1e-13)))
    above = int(np.count_nonzero(falling >= budget)) - 1
    if above == len(grid) - 1 or falling[above] == budget:
        return float(grid[above])
    low, high = np.log(grid[above]), np.log(grid[above + 1])
    return float(np.exp(falling_root(excess, low, high, 1e-14)))


def falling_root(excess: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    """Where a falling function is 0 between two places, at which it is not negative and negative;
    rounding may say otherwise of one of them, and then it is that one."""
    if not excess(low) > 0.0:
        return low
    if not excess(high) < 0.0:
        return high
    return float(brentq(excess, low, high, xtol=xtol))


def solve_exact(
    params: PageParameters,
    host_index: NDArray[np.int32] | None,
    host_caps: Column | None,
    budget: float,
) -> Allocation:
    """The optimum for ``budget`` crawls per day, from the pages themselves.

    ``host_index`` gives each page's row in ``host_caps`` (crawls per day, infinite for none).  The
    rates sum to the budget to 1e-12 relative, or to all that the hosts' limits allow.  Where the
    demand of pages with α = 0 jumps over the budget, they share their time between both sides.
    """
    hosts = np.zeros(len(params), np.int32) if host_index is None else host_index
    caps = np.full(1, np.inf) if host_caps is None else host_caps
    wanted = np.flatnonzero((params.importance > 0) & (params.change_rate > 0))
    never = params.importance[params.change_rate == 0].sum()
    rates = np.zeros(len(params))
    host_multipliers = np.zeros(len(caps))
    if not budget > 0.0 or len(wanted) == 0:
        return Allocation(np.inf, host_multipliers, rates, float(never))
    order = wanted[np.argsort(hosts[wanted], kind="stable")]
    pages, offsets, present = group_by_host(params[order], hosts[order])
    columns = (pages.importance, pages.alpha, pages.kappa, pages.gamma)
    warm = np.zeros(len(order))
    low = high = SMALLEST_THRESHOLD
    if caps[present].sum() > budget:
        guess = float(np.median(pages.highest_value)) * 0.3
        low, high = solve_hosts(*columns, warm, offsets, caps[present], budget, guess, _TOLERANCE)
    sides = []
    for multiplier in dict.fromkeys((low, high)):
        brackets = np.empty((len(present), 2))
        solve_each_host(*columns, warm, offsets, caps[present], multiplier, brackets)
        sides.append(_rates_at(columns, offsets, caps[present], brackets))
    side_rates, objective = _mix(sides, budget)
    rates[order] = side_rates
    host_multipliers[present] = np.maximum(brackets[:, 0] - high, 0.0)
    multiplier = high if high > SMALLEST_THRESHOLD else 0.0
    return Allocation(multiplier, host_multipliers, rates, float(never) + objective)


Side = tuple[Column, float]


def _rates_at(
    columns: tuple[Column, ...], offsets: NDArray[np.int64], caps: Column, brackets: Column
) -> Side:
    """(rates, objective) with each host at its threshold, or between both sides of a jump."""
    sizes = np.diff(offsets)
    results: list[tuple[Column, Column]] = []
    for side in (0, 1):
        rates = np.empty(len(columns[0]))
        fresh = np.empty(len(columns[0]))
        thresholds = np.repeat(brackets[:, side], sizes)
        importance, alpha, kappa, gamma = columns
        fill_rates(rates, fresh, importance, alpha, kappa, gamma, thresholds)
        results.append((rates, fresh))
    (rates, fresh), (lower, staler) = results
    high_sum = np.add.reduceat(rates, offsets[:-1])
    low_sum = np.add.reduceat(lower, offsets[:-1])
    share = np.ones(len(caps))
    jumps = high_sum > low_sum
    np.divide(caps - low_sum, high_sum - low_sum, out=share, where=jumps)
    share = np.repeat(np.clip(share, 0.0, 1.0), sizes)
    mixed = share * rates + (1.0 - share) * lower
    freshness = share * fresh + (1.0 - share) * staler
    return mixed, float(columns[0] @ freshness)


def _mix(sides: list[Side], budget: float) -> Side:
    """Time shared between the two sides of a jump, so that the rates sum to the budget."""
    if len(sides) == 1:
        return sides[0]
    (rates, objective), (lower, staler) = sides
    most, least = rates.sum(), lower.sum()
    share = 1.0
    if most > least:
        share = float(np.clip((budget - least) / (most - least), 0.0, 1.0))
    return share * rates + (1.0 - share) * lower, share * objective + (1.0 - share) * staler
