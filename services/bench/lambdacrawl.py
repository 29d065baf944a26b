"""Benchmark of LambdaCrawl: seconds, constraint, KKT conditions, and a general solver."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from services.bench.timing import thread_seconds
from shared.policy.lambdacrawl.binary import binary_lambda_crawl, binary_lambda_crawl_with_floor
from shared.policy.lambdacrawl.continuous import optimal_continuous_rates
from shared.policy.lambdacrawl.costs import binary_cost, harmonic_cost
from shared.policy.lambdacrawl.harmonic import (
    CrawlRates,
    lambda_crawl,
    lambda_crawl_approximate,
    lambda_crawl_incomplete,
)

SOLVER_PAGES = 100
"""Pages given to the general solver, whose cost grows with the cube of their number."""

COMPLETE_SHARE = 0.04
BANDWIDTH_SHARE = 0.2
"""As in the experiments of [K]: 4 % of pages with complete signals, one crawl per five pages."""

SIZES = (100_000, 1_000_000)

Floats = NDArray[np.float64]


def run(pages: int, seed: int) -> dict[str, Any]:
    """Solve `pages` pages of mixed observability on one thread.

    `seconds_by_pages` are for a hundred thousand and for a million pages whatever `pages` is.
    `max_relative_error` is |Σρ − R|/R, `kkt` the largest relative violation of the optimality
    conditions, `ratio` how many times faster a page is solved than by scipy's SLSQP, and
    `worst_excess` our harmonic cost over that solver's, relative (negative: ours is cheaper).
    Costs are per page.
    """
    importance, change_rate, complete = population(pages, seed)
    bandwidth = BANDWIDTH_SHARE * pages
    columns = (importance, change_rate, complete)
    policy, seconds = _timed(lambda: lambda_crawl(*columns, bandwidth))
    others: dict[str, tuple[CrawlRates, float]] = {
        "lc_incomplete": _timed(
            lambda: lambda_crawl_incomplete(importance, change_rate, bandwidth)
        ),
        "lca": _timed(lambda: lambda_crawl_approximate(*columns, bandwidth)),
        "blc": _timed(lambda: binary_lambda_crawl(importance, change_rate, bandwidth)),
        "blc_floor": _timed(
            lambda: binary_lambda_crawl_with_floor(importance, change_rate, bandwidth)
        ),
        "even_intervals": _timed(
            lambda: optimal_continuous_rates(importance, change_rate, bandwidth)
        ),
    }
    solver_seconds, excess = _against_solver(min(SOLVER_PAGES, pages), seed)
    return {
        "pages": pages,
        "seconds": seconds,
        "seconds_by_pages": {str(size): _seconds_at(size, seed) for size in SIZES},
        "ns_per_page": 1e9 * seconds / pages,
        "max_relative_error": abs(float(policy.rates.sum()) / bandwidth - 1.0),
        "kkt": _kkt_violation(*columns, policy),
        "ratio": solver_seconds / (seconds / pages),
        "worst_excess": excess,
        "harmonic_cost": harmonic_cost(importance, change_rate, policy.rates, complete) / pages,
        "binary_cost": binary_cost(importance, change_rate, policy.rates, complete) / pages,
        "others": {
            name: {
                "seconds": spent,
                "max_relative_error": abs(float(other.rates.sum()) / bandwidth - 1.0),
            }
            for name, (other, spent) in others.items()
        },
    }


def _seconds_at(pages: int, seed: int) -> float:
    columns = population(pages, seed)
    return _timed(lambda: lambda_crawl(*columns, BANDWIDTH_SHARE * pages))[1]


def population(pages: int, seed: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """(importance, change rate per day, complete): heavy tails, rates over four decades."""
    rng = np.random.default_rng(seed)
    importance = np.minimum(rng.pareto(1.2, pages) + 1.0, 1000.0)
    change_rate = 10 ** rng.uniform(-3, 1, pages)
    return importance, change_rate, rng.random(pages) < COMPLETE_SHARE


def _timed(solve: Callable[[], CrawlRates]) -> tuple[CrawlRates, float]:
    """The result and the least time of three calls; the first one also compiles."""
    best, result = np.inf, solve()
    for _ in range(3):
        started = thread_seconds()
        result = solve()
        best = min(best, thread_seconds() - started)
    return result, best


def _kkt_violation(
    importance: Floats, change_rate: Floats, complete: NDArray[np.bool_], policy: CrawlRates
) -> float:
    """Largest relative distance of a page's marginal value from λ; one-sided at p = 1."""
    rates = policy.rates
    polled = importance * change_rate / (rates * (rates + change_rate))
    gap = np.where(complete, importance / rates, polled) / policy.multiplier - 1.0
    capped = complete & (rates >= change_rate)
    return float(np.abs(np.where(capped, np.minimum(gap, 0.0), gap)).max())


def _against_solver(pages: int, seed: int) -> tuple[float, float]:
    """Seconds a page of SLSQP, and our relative excess in harmonic cost over its answer."""
    importance, change_rate, complete = population(pages, seed)
    complete[:: max(pages // 10, 1)] = True
    bandwidth = BANDWIDTH_SHARE * pages
    upper = np.where(complete, np.minimum(change_rate, bandwidth), bandwidth)

    def cost(rates: Floats) -> float:
        missed = np.log1p(change_rate / rates)
        caught = -np.log(np.minimum(rates / change_rate, 1.0))
        return float((importance * np.where(complete, caught, missed)).sum())

    def slope(rates: Floats) -> Floats:
        missed = -change_rate / (rates * (rates + change_rate))
        return np.asarray(importance * np.where(complete, -1.0 / rates, missed))

    started = thread_seconds()
    found = minimize(
        cost,
        np.minimum(np.full(pages, BANDWIDTH_SHARE), upper),
        jac=slope,
        method="SLSQP",
        bounds=list(zip(np.full(pages, 1e-9), upper, strict=True)),
        constraints={
            "type": "eq",
            "fun": lambda rates: rates.sum() - bandwidth,
            "jac": lambda rates: np.ones(rates.size),
        },
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    seconds = thread_seconds() - started
    feasible = np.minimum(found.x * min(1.0, bandwidth / found.x.sum()), upper)
    ours = cost(lambda_crawl(importance, change_rate, complete, bandwidth).rates)
    return seconds / pages, ours / cost(feasible) - 1.0
