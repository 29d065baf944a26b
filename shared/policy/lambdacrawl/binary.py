"""BinaryLambdaCrawl: the rates that minimise the binary cost ([A]; [K] supplement, 9.3).

Minimises Σ μΔ/(Δ + ρ) with Σρ = R over Poisson crawls that see no signals. From the KKT
conditions ρ = max(floor, √(μΔ/λ) − Δ), with floor 0 for BLC, so a page with μ/Δ ≤ λ is starved,
and floor εR/|W| for BLCε. In s = 1/√λ the sum is convex and piecewise linear, so Newton's method
from the right, without sorting, finds the root exactly in a few passes. Rates per day.
"""

import math
from typing import Any

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.lambdacrawl.harmonic import CrawlRates
from shared.policy.lambdacrawl.inputs import Floats, checked_bandwidth, checked_pages

FLOOR_SHARE = 0.4
"""ε of BLCε: the share of bandwidth that is spread evenly as a floor, as tuned by [K]."""


def binary_lambda_crawl(importance: Any, change_rate: Any, bandwidth: float) -> CrawlRates:
    """BLC: the optimum of the binary cost over all pages; starves those with μ/Δ ≤ λ.

    `importance` and `change_rate` (per day) are (pages,), `bandwidth` in crawls per day.

    Raises ValueError on malformed columns or bandwidth, or if no page can use a crawl.
    """
    return binary_lambda_crawl_with_floor(importance, change_rate, bandwidth, 0.0)


def binary_lambda_crawl_with_floor(
    importance: Any, change_rate: Any, bandwidth: float, floor_share: float = FLOOR_SHARE
) -> CrawlRates:
    """BLCε: as `binary_lambda_crawl`, but every page is crawled at least εR/|W| times a day.

    [K] sets the rates below the floor to the floor and solves again for the others; repeated until
    none is below, that is the optimum under the floor, which is found here at once. `floor_share`
    is ε in [0, 1].

    Raises ValueError on malformed columns, bandwidth or floor, or if no page can use a crawl.
    """
    pages = checked_pages(importance, change_rate)
    budget = checked_bandwidth(bandwidth)
    if not 0 <= floor_share <= 1:
        raise ValueError(f"floor_share is {floor_share}, must be between 0 and 1")
    root = np.sqrt(pages.importance * pages.change_rate)
    if not root.any():
        raise ValueError("no page has both importance and changes, so no crawl is of use")
    floor = floor_share * budget / root.size
    scale = _solve_scale(root, pages.change_rate, floor, budget)
    rates = np.maximum(floor, np.where(root > 0, scale * root - pages.change_rate, 0.0))
    return CrawlRates(rates, scale**-2)


@compiled
def _solve_scale(root: Floats, change_rate: Floats, floor: float, bandwidth: float) -> float:
    """s with Σ max(floor, s√(μΔ) − Δ) = R. From the right each Newton step only drops pages."""
    scale = math.inf
    for _ in range(root.size + 1):
        slope = changes = 0.0
        floored = 0
        # Summed in blocks, so that a million terms keep their digits.
        for begin in range(0, root.size, 512):
            block_slope = block_changes = 0.0
            for page in range(begin, min(begin + 512, root.size)):
                if root[page] > 0.0 and scale * root[page] - change_rate[page] > floor:
                    block_slope += root[page]
                    block_changes += change_rate[page]
                else:
                    floored += 1
            slope += block_slope
            changes += block_changes
        ahead = (bandwidth - floored * floor + changes) / slope if slope > 0.0 else scale
        if not ahead < scale:
            break
        scale = ahead
    return scale
