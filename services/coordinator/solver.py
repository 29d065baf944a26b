"""λ₀ and the shards' shares of the budget, from the shards' demand curves. Pure.

Two different questions have two different answers:

- *Which pages are worth a crawl in the long run?* λ₀ solves Σ D_p(λ₀) = R (design: maths, "When
  to crawl"). It is the multiplier that everybody sees.
- *Where does the next second's budget go?* To the pages that are worth most now, wherever they
  are; long-run demand says little of that while pages are new or parameters are being learned.
  With `ripe_p(λ)` pages at or above λ now, λ* solves Σ_p ripe_p(λ*) = R·H, the crawls of the next
  H seconds, and a shard's share is its term of the sum: all shards work down to one and the same
  value, as one scheduler over all pages would. What a shard is short of shows in the next
  reports, so shares correct themselves. Where less is ripe than the budget can take, the rest
  goes by demand: λ* then solves Σ_p [ripe_p(λ*)/H + D_p(λ*)] = R.

A shard that has shown that it cannot use more than a certain rate (`usage`) counts up to this rate,
in both sums. Budget that nothing asks for goes to the shards that can still take it: they crawl
what is worth less than λ₀ rather than nothing. Where all of them have shown that, and could fill
less than the budget, λ₀ is for what they can (`capacity.most_made`).

Rates here are crawls per second of the clock, whatever the unit of the curves' thresholds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from shared.contracts.messages import DemandCurve
from shared.policy.demand import interpolate_demand
from shared.policy.multipliers import falling_root, solve_multiplier

Floats = NDArray[np.float64]

MOST_PAGES = 2.0**62
"""As many as a report may count: the sum over all shards is a number, too."""

MOST_POINTS = 1000
"""Thresholds of a report; all shards' make one grid."""

LEAST_THRESHOLD, MOST_THRESHOLD = 1e-100, 1e100
"""No crawl value is beyond: the ratio of any two, and what a curve goes on to, is a number too."""

LEAST_STEP = 1e-6
"""Thresholds of a report are further apart than that, as a part of each. Those of several that are
nearer are one: the last bits of a power depend on who makes it."""

MOST_RATE = 1e9
"""Crawls, answers or slots per second: nobody has so many, and the sum over all shards is a number,
too."""

STEEPEST_END = -0.5
"""Below its grid a curve goes on with its slope there, at most with this one (in logarithms)."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The shards' curves on one grid of thresholds."""

    shards: tuple[int, ...]
    grid: Floats
    """Rising, positive, at least two."""
    demand: Floats
    """Shards × grid: crawls per second."""
    ripe: Floats
    """Shards × grid: pages whose value is at least the threshold now."""
    pages: Floats
    """One a shard."""


def check_curve(curve: DemandCurve) -> None:
    """Refuse a curve that cannot be added to others.

    Raises:
        ValueError: says what is wrong.
    """
    points = len(curve.thresholds)
    if points < 2 or len(curve.demand) != points or len(curve.ripe) != points:
        raise ValueError(
            f"{points} thresholds, {len(curve.demand)} demands and {len(curve.ripe)} ripe counts: "
            "give as many of each, 2 or more"
        )
    if points > MOST_POINTS:
        raise ValueError(f"{points} thresholds: give {MOST_POINTS} at most")
    lowest, highest = curve.thresholds[0], curve.thresholds[-1]
    if lowest <= 0 or any(high <= low for low, high in pairwise(curve.thresholds)):
        raise ValueError("the thresholds must be positive and rise strictly")
    if any(high <= low * (1.0 + LEAST_STEP) for low, high in pairwise(curve.thresholds)):
        raise ValueError(f"thresholds lie nearer to each other than a part of {LEAST_STEP:g}")
    if lowest < LEAST_THRESHOLD or highest > MOST_THRESHOLD:
        raise ValueError(f"thresholds from {lowest:g} to {highest:g}: no crawl value is so extreme")
    if max(curve.ripe) > MOST_PAGES:
        raise ValueError(f"{max(curve.ripe):g} pages are ripe, more than there can be")
    fastest = max(
        curve.achieved_crawls_per_second,
        curve.answered_crawls_per_second,
        curve.held_crawls_per_second,
        curve.unused_crawls_per_second,
        *(of.crawls_per_second for of in curve.reasons),
        *(of.crawls_per_second for of in curve.classes),
    )
    if fastest > MOST_RATE:
        raise ValueError(f"{fastest:g} crawls, answers or slots a second, more than there can be")


def gather(
    reports: Mapping[int, DemandCurve], before: Curves | None = None, same: Collection[int] = ()
) -> Curves:
    """The reports, by shard, as arrays on one grid.

    Args:
        reports: by shard; at least one.
        before: what was gathered last.
        same: shards whose reports were a part of that already: on the same grid their rows stand.
    """
    shards = tuple(sorted(reports))
    curves = [reports[shard] for shard in shards]
    # Shards lay their grids over the same points, each over the part that it needs.
    grid = np.unique(np.concatenate([curve.thresholds for curve in curves]))
    grid = grid[np.diff(grid, prepend=0.0) > LEAST_STEP * grid]
    demand, ripe = np.empty((2, len(shards), grid.size))
    kept: dict[int, int] = {}
    if before is not None and np.array_equal(grid, before.grid):
        kept = {shard: row for row, shard in enumerate(before.shards) if shard in same}
    for row, (shard, curve) in enumerate(zip(shards, curves, strict=True)):
        if before is not None and shard in kept:
            demand[row], ripe[row] = before.demand[kept[shard]], before.ripe[kept[shard]]
        else:
            demand[row] = _on_grid(grid, curve.thresholds, curve.demand)
            ripe[row] = _on_grid(grid, curve.thresholds, curve.ripe)
    return Curves(shards, grid, demand, ripe, np.array([c.pages for c in curves], np.float64))


def _on_grid(grid: Floats, thresholds: list[float], curve: list[float]) -> Floats:
    """A shard's curve on a grid that holds its own thresholds, or almost, among others."""
    own = np.array(thresholds)
    values = np.array(curve)
    first, last = np.searchsorted(grid, own[[0, -1]], side="right") - 1
    if last - first + 1 != own.size or values[-1] <= 0 or (values[1:] > values[:-1]).any():
        return interpolate_demand(own, values, grid) if grid.size != own.size else values
    # The usual case, a hundred times cheaper than the interpolation, and the same: others' points
    # lie only beyond our own.
    result = np.empty(grid.size)
    result[first : last + 1] = values
    result[last + 1 :] = values[-1]
    logarithms, places = np.log(values[:2]), np.log(own[:2])
    slope = (logarithms[1] - logarithms[0]) / (places[1] - places[0])
    result[:first] = values[0] * (grid[:first] / own[0]) ** max(slope, STEEPEST_END)
    return result


def limits_of(curves: Curves, limits: Mapping[int, float]) -> Floats:
    """The shards' limits in crawls per second; infinite for those without."""
    return np.array([limits.get(shard, np.inf) for shard in curves.shards], np.float64)


def solve_threshold(curves: Curves, budget: float, limits: Floats | None = None) -> float:
    """λ₀ for a budget in crawls per second, and limits of the shards where there are some.

    Without a budget nothing is worth a crawl: the grid's highest threshold stands for infinity,
    which JSON cannot say. A budget that is more than everything asks for gives 0.
    """
    if budget <= 0:
        return float(curves.grid[-1])
    most = np.full(len(curves.shards), np.inf) if limits is None else limits
    total = np.minimum.accumulate(_up_to(most, curves.demand).sum(axis=0))
    if total[-1] <= 0 or not total[0] > budget > total[-1]:
        return solve_multiplier(curves.grid, total, budget)
    above = int(np.count_nonzero(total >= budget)) - 1
    low, high = np.log(curves.grid[above : above + 2])
    if not np.isfinite(most).any():
        # The same root of the same curve, laid through the points once, not at every step.
        curve = PchipInterpolator(np.log(curves.grid), np.log(total) - np.log(budget))
        return float(np.exp(falling_root(curve, low, high, 1e-14)))
    # Where a shard comes to its limit the sum has a bend, and that is seldom at a point of the
    # grid: each curve is followed by itself between two points.
    ends = np.log(np.maximum(curves.demand[:, above : above + 2], LEAST_THRESHOLD))

    def excess(place: float) -> float:
        weight = (place - low) / (high - low)
        between = np.exp(ends[:, 0] * (1 - weight) + ends[:, 1] * weight)
        return float(np.minimum(between, most).sum() / budget - 1.0)

    return float(np.exp(falling_root(excess, low, high, 1e-14)))


def _up_to(limits: Floats, rows: Floats) -> Floats:
    return np.asarray(np.minimum(rows, limits[:, np.newaxis]))


class Slots(NamedTuple):
    """Who gets the next slots."""

    shares: dict[int, float]
    """Of the shards in the budget; they add up to 1, or to 0 if there is no page at all."""
    value: float
    """λ*: down to which they are filled. It is what a slot is worth now, below λ₀ as long as most
    copies are fresher than they will be."""


def solve_slots(
    curves: Curves, budget: float, relaxation_seconds: float, limits: Floats | None = None
) -> Slots:
    """Who gets the next slots, down to which value.

    Args:
        curves: of the shards that are there.
        budget: R, crawls per second.
        relaxation_seconds: H, in which a backlog is to be worked off.
        limits: crawls per second that each shard can use at most; None: there are none.
    """
    if limits is None:
        limits = np.full(len(curves.shards), np.inf)
    wanted = _wanted(curves, budget, relaxation_seconds, limits)
    place = _place(wanted, budget) if budget > 0 else 0.0
    value = 0.0
    if not budget > 0:
        value = float(curves.grid[-1])
    elif wanted[:, 0].sum() >= budget:
        value = float(np.exp(_between(np.log(curves.grid), place)))
    # Each shard's term where the sum of all terms is the budget, or nearest to it: the column
    # there, linear in the logarithm of the threshold between two columns.
    for basis in (_between(wanted, place), wanted[:, 0], curves.pages):
        if basis.sum() > 0:
            given = _fill(basis, curves.pages, limits, budget)
            shares = (given / given.sum()).tolist()
            return Slots(dict(zip(curves.shards, shares, strict=True)), value)
    return Slots(dict.fromkeys(curves.shards, 0.0), value)


def _wanted(curves: Curves, budget: float, relaxation_seconds: float, limits: Floats) -> Floats:
    """Shards × grid: what each takes of the next crawls down to a threshold, per second."""
    wanted = curves.ripe / relaxation_seconds
    if wanted[:, 0].sum() < budget:
        wanted = wanted + curves.demand
    wanted[curves.pages == 0] = 0.0
    return _up_to(limits, wanted)


def _place(wanted: Floats, budget: float) -> float:
    """Where the sum of all terms is the budget, or nearest to it: as a place on the grid."""
    total = np.minimum.accumulate(wanted.sum(axis=0))
    enough = int(np.count_nonzero(total >= budget))
    if enough in (0, total.size):
        return float(max(enough - 1, 0))
    drop = total[enough - 1] - total[enough]
    return float(enough - 1 + (total[enough - 1] - budget) / drop)


def _between(columns: Floats, place: float) -> Floats:
    """What stands at a place on the grid, linear between two of the last axis."""
    below = min(int(place), columns.shape[-1] - 2)
    weight = place - below
    return np.asarray(columns[..., below] * (1 - weight) + columns[..., below + 1] * weight)


def _fill(basis: Floats, pages: Floats, limits: Floats, budget: float) -> Floats:
    """Parts of the budget, in proportion to `basis`, no shard above its limit while others are
    below theirs."""
    if not budget > 0:
        return basis
    with np.errstate(over="ignore"):
        bounded = np.where(pages > 0, limits / budget, 0.0)
    given = np.zeros(len(basis))
    is_open = np.ones(len(basis), np.bool_)
    while is_open.any():
        rest = 1.0 - given[~is_open].sum()
        weights = np.where(is_open, basis, 0.0)
        if not weights.sum() > 0:
            # Those that ask for something have all that they can use.
            weights = np.where(is_open, pages, 0.0)
        if not weights.sum() > 0:
            break
        given = np.where(is_open, rest * weights / weights.sum(), given)
        full = is_open & (given >= bounded)
        if not (full & (given > bounded)).any():
            return given
        given[full] = bounded[full]
        is_open &= ~full
    # Nobody can use what is left.
    return given if given.sum() > 0 else basis


def demand_at(curves: Curves, threshold: float) -> Floats:
    """Each shard's demand at a threshold, crawls per second."""
    return _at(curves.grid, curves.demand, threshold)


def _at(grid: Floats, rows: Floats, threshold: float) -> Floats:
    """Rows at a threshold, linear in its logarithm, constant beyond the grid."""
    logarithm = np.log(np.clip(threshold, grid[0], grid[-1]))
    return _between(rows, float(np.interp(logarithm, np.log(grid), np.arange(len(grid)))))
