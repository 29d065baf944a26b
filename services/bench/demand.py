"""Benchmark of the demand curve and of λ₀: residual, seconds, and a general solver's objective."""

from typing import Any

import numpy as np

from services.bench import demand_shard
from services.bench.convex_solver import best_objective
from services.bench.random_pages import random_population
from services.bench.timing import thread_seconds
from shared.policy.demand import demand_curve, log_grid
from shared.policy.model import PageParameters
from shared.policy.multipliers import solve_exact, solve_multiplier

_SOLVER_PAGES = 2_000
_PAGES_PER_HOST = 50
_POINTS = 64
_SAMPLE = 20_000


def run(
    pages: int = 1_000_000, sets: int = 3, seed: int = 0, shard_pages: int = 10_000_000
) -> dict[str, Any]:
    """Solve ``pages`` mixed pages (a fifth with signals), a tenth of their hosts limited.

    ``residual`` is |Σ rates − R|/R of the exact solution, ``seconds`` its time and
    ``limited_hosts`` how many limits bind; ``curve_seconds`` and ``curve_error`` are the time of a
    64-point curve from a sample of the pages with signals, and the relative error of λ₀ from it.
    ``ns_per_page`` is for a curve of pages without signals.  ``max_relative_error`` is how far the
    objective is from a general convex solver's on 2,000 pages, ``sets`` of them with other seeds.
    ``shard`` is the demand of a shard of ``shard_pages`` beside its ticks: see `demand_shard`.
    """
    params, hosts, caps, budget = random_population(pages, max(pages // _PAGES_PER_HOST, 10), seed)
    solve_exact(params[:10], hosts[:10], caps, 1.0)
    started = thread_seconds()
    optimum = solve_exact(params, hosts, caps, budget)
    seconds = thread_seconds() - started
    grid = log_grid(1e-4 * optimum.multiplier, 1e3 * optimum.multiplier, _POINTS)
    demand_curve(params[:10], hosts[:10], caps, grid)
    started = thread_seconds()
    curve = demand_curve(params, hosts, caps, grid, max_exact=_SAMPLE, seed=seed)
    curve_seconds = thread_seconds() - started
    return {
        "pages": pages,
        "residual": abs(float(optimum.rates.sum()) - budget) / budget,
        "seconds": seconds,
        "limited_hosts": int((optimum.host_multipliers > 0).sum()),
        "curve_seconds": curve_seconds,
        "curve_error": abs(solve_multiplier(grid, curve, budget) / optimum.multiplier - 1.0),
        "ns_per_page": _unsignalled_nanoseconds(params, grid),
        "sets": sets,
        "max_relative_error": max((_distance(seed + extra) for extra in range(sets)), default=None),
        "shard": demand_shard.run(shard_pages, seed) if shard_pages else None,
    }


def _unsignalled_nanoseconds(params: PageParameters, grid: np.ndarray) -> float:
    silent = params[params.gamma == 0]
    demand_curve(silent, None, None, grid)
    started = thread_seconds()
    demand_curve(silent, None, None, grid)
    return (thread_seconds() - started) / len(silent) * 1e9


def _distance(seed: int) -> float:
    """How far, relative, the optimum of a small instance may be from the general solver's."""
    params, hosts, caps, budget = random_population(_SOLVER_PAGES, 40, seed)
    lower, upper = best_objective(params, hosts, caps, budget)
    objective = solve_exact(params, hosts, caps, budget).objective
    return max(abs(objective - lower), abs(upper - objective)) / upper
