"""The demand curve D(Λ): crawls per day that a set of pages asks for at each global threshold.

D(Λ) = Σ_hosts min(k_h, Σ_pages f(V⁻¹(Λ))), falling in Λ.  Curves of disjoint sets of hosts add, so
a coordinator that sums the shards' curves on one grid finds λ₀ for any budget without the pages.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from shared.policy.kernels.demand import (
    demand_of_histogram,
    demand_of_hosts,
    demand_of_pages,
    histogram,
)
from shared.policy.model import Column, PageParameters

_BINS = 32_768
"""Classes of ln(μ/Δ) of pages without signals; their curve is exact to 1e-6 to 1e-5."""

_FEW_PAGES = 20_000
"""Up to here pages without signals are summed one by one: single pages show in the curve."""

_STEEPEST_END = -0.5
"""D ∝ Λ^−½ as Λ → 0, wherever no host limit binds."""


def log_grid(low: float, high: float, points: int) -> Column:
    """``points`` thresholds from ``low`` to ``high``, evenly spaced in their logarithm.

    Raises ``ValueError`` unless 0 < low < high and there are two points or more.
    """
    if not (0.0 < low < high < np.inf and points >= 2):
        raise ValueError(
            f"no grid of {points} thresholds from {low!r} to {high!r}: give finite bounds "
            "0 < low < high and at least 2 points"
        )
    return np.geomspace(low, high, points)


def demand_curve(
    params: PageParameters,
    host_index: NDArray[np.int32] | None,
    host_caps: Column | None,
    grid: Column,
    *,
    max_exact: int | None = None,
    seed: int = 0,
) -> Column:
    """D in crawls per day at every threshold of the ascending ``grid``.

    ``host_index`` gives each page's row in ``host_caps`` (crawls per day, infinite for none); both
    may be ``None`` where no host is limited.  Many pages without signals on unlimited hosts go
    through a histogram (relative error 1e-6 to 1e-5).  More than ``max_exact`` pages with signals
    on unlimited hosts are represented by a stratified sample of about that size, drawn with
    ``seed`` proportionally to Δ along μ/Δ; all else is exact.
    """
    wanted = (params.importance > 0) & (params.change_rate > 0)
    capped = np.zeros(len(params), dtype=np.bool_)
    if host_index is not None and host_caps is not None:
        capped = np.isfinite(host_caps)[host_index]
    signalled = (params.gamma > 0) & (params.kappa > 0)
    total = _demand_without_signals(params[wanted & ~capped & ~signalled], grid)
    free = params[wanted & ~capped & signalled]
    total += _demand_with_signals(free, grid, max_exact, seed)
    limited = wanted & capped
    if host_index is not None and host_caps is not None and limited.any():
        pages, offsets, hosts = group_by_host(params[limited], host_index[limited])
        total += demand_of_hosts(
            pages.importance,
            pages.alpha,
            pages.kappa,
            pages.gamma,
            offsets,
            host_caps[hosts],
            grid,
        )
    return total


def group_by_host(
    params: PageParameters, host_index: NDArray[np.int32]
) -> tuple[PageParameters, NDArray[np.int64], NDArray[np.int32]]:
    """(pages sorted by host, offsets of each host's first page, hosts present)."""
    order = np.argsort(host_index, kind="stable")
    hosts, first = np.unique(host_index[order], return_index=True)
    offsets = np.append(first, len(order)).astype(np.int64)
    return params[order], offsets, hosts


def merge(curves: Sequence[Column]) -> Column:
    """The curve of several shards: the sum of theirs, which must share one grid."""
    return np.sum(np.stack(list(curves)), axis=0) if curves else np.zeros(0)


def interpolate_demand(grid: Column, demand: Column, thresholds: Column) -> Column:
    """D at ``thresholds``; see :class:`DemandLine`, which is laid once for many questions."""
    return DemandLine(grid, demand).at(thresholds)


class DemandLine:
    """D between and beyond the points of a curve: monotone cubic interpolation of ln D in ln Λ
    (PCHIP).

    Past the last positive point D falls linearly to the next one's 0; above the grid it is 0 or
    stays, below the grid it continues with its end slope, at most Λ^−½.
    """

    def __init__(self, grid: Column, demand: Column) -> None:
        self._grid = grid
        self._falling = np.minimum.accumulate(np.maximum(demand, 0.0))
        self._positive = int(np.count_nonzero(self._falling > 0))
        self._slope = 0.0
        if self._positive > 1:
            drop = np.log(self._falling[1] / self._falling[0])
            self._slope = max(drop / np.log(grid[1] / grid[0]), _STEEPEST_END)
        self._cubic: PchipInterpolator | None = None

    def at(self, thresholds: Column) -> Column:
        """D at each of the thresholds."""
        grid, falling, positive = self._grid, self._falling, self._positive
        result = np.zeros(len(thresholds))
        if positive == 0:
            return result
        last = grid[positive - 1]
        inside = thresholds <= last
        below = (thresholds < grid[0]) if positive > 1 else np.zeros(len(thresholds), np.bool_)
        between = inside & ~below
        if between.any():
            clipped = np.log(np.clip(thresholds[between], grid[0], last))
            result[between] = np.exp(self._log_demand()(clipped))
        if below.any():
            with np.errstate(divide="ignore"):
                result[below] = falling[0] * (thresholds[below] / grid[0]) ** self._slope
        if positive < len(grid):
            share = (grid[positive] - thresholds) / (grid[positive] - last)
            result[~inside] = falling[positive - 1] * np.maximum(share[~inside], 0.0)
        else:
            result[~inside] = falling[-1]
        return result

    def _log_demand(self) -> PchipInterpolator:
        """Laid when it is first asked for: not everybody asks for what is within the grid."""
        if self._cubic is None:
            grid, positive = self._grid, self._positive
            if positive == 1:
                flat = np.log(self._falling[[0, 0]])
                self._cubic = PchipInterpolator(np.log([grid[0], 2.0 * grid[0]]), flat)
            else:
                falling = np.log(self._falling[:positive])
                self._cubic = PchipInterpolator(np.log(grid[:positive]), falling)
        return self._cubic


def _demand_without_signals(params: PageParameters, grid: Column) -> Column:
    if len(params) <= _FEW_PAGES:
        return _demand_page_by_page(params, np.ones(len(params)), grid)
    log_value = np.log(params.importance / params.alpha)
    low = float(log_value.min())
    width = max((float(log_value.max()) - low) / _BINS, 1e-12)
    weights, weighted = histogram(log_value, params.alpha, low, _BINS, width)
    filled = weights > 0
    return demand_of_histogram(weights[filled], weighted[filled] / weights[filled], grid)


def _demand_with_signals(
    params: PageParameters, grid: Column, max_exact: int | None, seed: int
) -> Column:
    weight = np.ones(len(params))
    if max_exact is not None and len(params) > max_exact:
        rows, weight = _stratified_sample(params, max_exact, seed)
        params = params[rows]
    return _demand_page_by_page(params, weight, grid)


def _demand_page_by_page(params: PageParameters, weight: Column, grid: Column) -> Column:
    return demand_of_pages(
        params.importance, params.alpha, params.kappa, params.gamma, weight, grid
    )


def _stratified_sample(
    params: PageParameters, size: int, seed: int
) -> tuple[NDArray[np.intp], Column]:
    """Rows and weights of a systematic sample along μ/Δ with probability proportional to Δ.

    f/Δ depends on μ/Δ above all, so each stretch of the sorted pages is nearly of one kind.
    """
    order = np.argsort(params.highest_value)
    change_rate = params.change_rate[order]
    cumulative = np.cumsum(change_rate)
    step = cumulative[-1] / size
    offset = np.random.default_rng(seed).random()
    hits = np.floor(cumulative / step + offset)
    times = np.diff(hits, prepend=np.floor(offset))
    chosen = np.flatnonzero(times > 0)
    return order[chosen], times[chosen] * step / change_rate[chosen]
