"""What a host's pages are crawled for: the objectives that crawl values can be of, by one code.

All are costs of a page for each day, times its importance, and share one unit, the cost of a stale
copy. *freshness*: 1 while the copy is stale. *harmonic*: H_n = 1 + 1/2 + … + 1/n with n changes
missed, so 1 for the first. *age* with weight w: 1 − w while the copy is stale, and w for each day
that it has been. So one λ₀ is the price of a crawl under all of them, in days of a stale copy of
importance 1.

`shared.contracts.objectives` has the codes: one byte.

In all of them a page is due once αt + jn reaches an index, the *jump* j being that of a signal: its
evidence κ, or under the harmonic objective its precision 1 − e^{−κ}.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from shared.contracts.objectives import FRESHNESS, HARMONIC, MOST_AGE
from shared.policy.compiled import compiled
from shared.policy.harmonic import harmonic_threshold_scalar, harmonic_value_scalar
from shared.policy.kernels.crawl_value import (
    change_rate_scalar,
    value_and_psi,
    value_at_evidence,
)
from shared.policy.kernels.harmonic import ein, unit_harmonic, unit_harmonic_inverse
from shared.policy.kernels.mixture import (
    LEAST_EVIDENCE,
    MOST_EVIDENCE,
    mixture_slope,
    mixture_threshold,
    mixture_value_and_psi,
    steady_threshold,
    steady_value,
)
from shared.policy.kernels.noisy import noisy_value_and_psi
from shared.policy.kernels.threshold import due_after_days_scalar, threshold_staleness_scalar
from shared.policy.model import Column, as_columns

SAME_SIGNALS = 1e-9
"""Sums of weights that are so near to a whole number are it."""

RAREST_DAYS = 1000.0
"""Pages that are crawled more rarely are not in demand curves where no page is ever given up."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_FINE_NODES, _FINE_WEIGHTS = np.polynomial.legendre.leggauss(24)

_BEYOND = 1.02
"""A panel is to end so far beyond the next threshold."""


def objective_values(
    objective: int,
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
) -> Column:
    """V of each page under an objective; `signals` need not be whole."""
    columns = as_columns(importance, alpha, kappa, gamma, elapsed_days, signals)
    values = np.empty(len(columns[0]))
    _fill_values(values, objective, *columns)
    return values


def objective_due_days(
    objective: int,
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    threshold: ArrayLike,
    signals: ArrayLike,
) -> Column:
    """Days after its last crawl at which each page's value reaches `threshold`, by the signals that
    it has; infinite: only further ones get it there, or nothing."""
    columns = as_columns(importance, alpha, kappa, gamma, threshold, signals)
    due = np.empty(len(columns[0]))
    _fill_due(due, objective, *columns)
    return due


@compiled
def objective_value_scalar(
    objective: int, alpha: float, kappa: float, gamma: float, elapsed: float, signals: float
) -> float:
    """V/μ of one page, days of a stale copy; of one that was never crawled what it is at most
    under the freshness objective, as the others have no bound."""
    if objective == FRESHNESS or elapsed == math.inf:
        if signals == np.floor(signals):
            return value_and_psi(alpha, kappa, gamma, elapsed, signals)[0]
        return value_at_evidence(alpha, kappa, gamma, elapsed, kappa * signals)[0]
    if objective == HARMONIC:
        whole = np.floor(signals + SAME_SIGNALS)
        part = signals - whole
        if part > 0.0 and alpha > 0.0:
            elapsed -= part * math.expm1(-kappa) / alpha
        return harmonic_value_scalar(alpha, kappa, gamma, elapsed, whole, False)
    weight = objective / MOST_AGE
    return mixture_value_and_psi(alpha, kappa, gamma, weight, elapsed, signals)[0]


@compiled
def objective_threshold_scalar(
    objective: int, alpha: float, kappa: float, gamma: float, target: float
) -> tuple[float, float]:
    """(index, ψ): a page is due once αt + jn reaches the index, at `target` = Λ/μ days; and the
    days between its crawls then."""
    if objective == FRESHNESS:
        return threshold_staleness_scalar(alpha, kappa, gamma, target)
    if objective == HARMONIC:
        return harmonic_threshold_scalar(alpha, kappa, gamma, target)
    return mixture_threshold(alpha, kappa, gamma, objective / MOST_AGE, target)


@compiled
def jump_of(objective: int, kappa: float) -> float:
    """What a signal adds to the index."""
    if objective == FRESHNESS:
        return kappa
    if objective == HARMONIC:
        return -math.expm1(-kappa)
    return min(kappa, MOST_EVIDENCE)


@compiled
def rarest_value_scalar(objective: int, alpha: float, kappa: float, gamma: float) -> float:
    """V/μ beyond which a page asks for no crawl, or for none in `RAREST_DAYS`; 0: it never does."""
    change_rate = change_rate_scalar(alpha, kappa, gamma)
    if not change_rate > 0.0:
        return 0.0
    if objective == FRESHNESS:
        return 1.0 / change_rate
    if objective == HARMONIC:
        return unit_harmonic(change_rate * RAREST_DAYS) / change_rate
    return steady_value(change_rate, objective / MOST_AGE, change_rate * RAREST_DAYS)


@compiled
def objective_rates(
    objective: int,
    importance: float,
    alpha: float,
    kappa: float,
    gamma: float,
    grid: Column,
    rates: Column,
) -> int:
    """Fill `rates` with the crawls a day of one page under each threshold of the rising `grid`; how
    many thresholds, from the lowest, have any.

    For objectives without a bound. Exact without signals and where all changes are signalled;
    else within some 1e-3 where V is smooth, and more where the page begins to wait for one signal
    more.
    """
    if not change_rate_scalar(alpha, kappa, gamma) > 0.0:
        return 0
    index, psi = objective_threshold_scalar(objective, alpha, kappa, gamma, grid[0] / importance)
    rates[0] = 1.0 / psi
    least = LEAST_EVIDENCE if objective != HARMONIC else 0.0
    if not (alpha > 0.0 and gamma > 0.0 and kappa > least):
        for point in range(1, grid.size):
            target = grid[point] / importance
            rates[point] = (
                1.0 / objective_threshold_scalar(objective, alpha, kappa, gamma, target)[1]
            )
        return grid.size
    _follow(objective, importance, alpha, kappa, gamma, grid, rates, index)
    return grid.size


@compiled
def _slope(objective: int, alpha: float, kappa: float, gamma: float, index: float) -> float:
    """dc/d(index), days of a stale copy a day."""
    if objective == HARMONIC:
        return -math.expm1(-index) / index if index > 0.0 else 1.0
    return mixture_slope(alpha, min(kappa, MOST_EVIDENCE), gamma, objective / MOST_AGE, index)


@compiled
def _psi_at(alpha: float, jump: float, gamma: float, index: float) -> float:
    """ψ where a page is crawled at an index, days."""
    signals = float(np.floor(index / jump))
    days = max(index - signals * jump, 0.0) / alpha
    return noisy_value_and_psi(alpha, jump, gamma, days, signals)[1]


@compiled
def _follow(
    objective: int,
    importance: float,
    alpha: float,
    kappa: float,
    gamma: float,
    grid: Column,
    rates: Column,
    index: float,
) -> None:
    """The rates under all thresholds but the first, from its index on: V is summed up on the way,
    V′ = c′ψ, and ψ taken along ln V between the ends of each panel."""
    jump = jump_of(objective, kappa)
    value = grid[0] / importance
    psi = 1.0 / rates[0]
    point = 1
    while point < grid.size:
        rise = index * _slope(objective, alpha, kappa, gamma, index) * psi / value
        wanted = math.log(_BEYOND * grid[point] / importance / value)
        end = index * math.exp(min(wanted / max(rise, 1e-9), 0.7))
        half = 0.5 * (end - index)
        more = 0.0
        for node in range(_NODES.size):
            place = index + half * (1.0 + _NODES[node])
            slope = _slope(objective, alpha, kappa, gamma, place)
            more += half * _WEIGHTS[node] * slope * _psi_at(alpha, jump, gamma, place)
        reached = value + more
        psi_there = _psi_at(alpha, jump, gamma, end)
        while point < grid.size and grid[point] <= reached * importance:
            share = math.log(grid[point] / importance / value) / math.log(reached / value)
            rates[point] = math.exp(-math.log(psi) - share * math.log(psi_there / psi))
            point += 1
        index, value, psi = end, reached, psi_there


@compiled
def signal_worth_scalar(
    objective: int, alpha: float, kappa: float, gamma: float, target: float
) -> float:
    """What it saves a day, over μ, to know of one signal of a page that is crawled at the price
    `target` = λ/μ days (`polls`): the mean of (c(x + j) − c(x*))⁺ over x in [0, x*].

    For objectives without a bound. Between polls the page gets to x* by time, at its whole pace.
    """
    change_rate = change_rate_scalar(alpha, kappa, gamma)
    jump = jump_of(objective, kappa)
    if not (change_rate > 0.0 and jump > 0.0 and target > 0.0):
        return 0.0
    weight = objective / MOST_AGE
    pace = alpha + gamma * jump
    if objective == HARMONIC:
        due = unit_harmonic_inverse(change_rate * target)
    else:
        due = steady_threshold(change_rate, weight, target)
    first = max(due - jump, 0.0)
    half = 0.5 * (due - first)
    known = _steady_penalty(objective, weight, pace, due)
    total = 0.0
    for node in range(_FINE_NODES.size):
        place = first + half * (1.0 + _FINE_NODES[node])
        more = _steady_penalty(objective, weight, pace, place + jump) - known
        total += half * _FINE_WEIGHTS[node] * more
    return max(total / due, 0.0)


@compiled
def _steady_penalty(objective: int, weight: float, pace: float, index: float) -> float:
    """c of a page that gets to an index at a steady pace."""
    if objective == HARMONIC:
        return ein(index)
    return (weight - 1.0) * math.expm1(-index) + weight * unit_harmonic(index) / pace


def objective_signal_worth(
    objective: int,
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    price: float,
) -> Column:
    """`polls.signal_worth` under an objective that has no bound."""
    columns = as_columns(importance, alpha, kappa, gamma)
    worth = np.empty(len(columns[0]))
    _fill_worth(worth, objective, price, *columns)
    return worth


@compiled
def _fill_worth(
    out: Column,
    objective: int,
    price: float,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
) -> None:
    for page in range(out.size):
        out[page] = 0.0
        if importance[page] > 0.0:
            target = price / importance[page]
            worth = signal_worth_scalar(objective, alpha[page], kappa[page], gamma[page], target)
            out[page] = importance[page] * worth


@compiled
def _fill_values(
    out: Column,
    objective: int,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    elapsed: Column,
    signals: Column,
) -> None:
    for page in range(out.size):
        out[page] = 0.0
        if importance[page] > 0.0:
            out[page] = importance[page] * objective_value_scalar(
                objective, alpha[page], kappa[page], gamma[page], elapsed[page], signals[page]
            )


@compiled
def _fill_due(
    out: Column,
    objective: int,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    threshold: Column,
    signals: Column,
) -> None:
    for page in range(out.size):
        out[page] = math.inf if threshold[page] > 0.0 else 0.0
        if importance[page] > 0.0 and threshold[page] > 0.0:
            target = threshold[page] / importance[page]
            index, _ = objective_threshold_scalar(
                objective, alpha[page], kappa[page], gamma[page], target
            )
            evidence = jump_of(objective, kappa[page]) * signals[page] if signals[page] > 0 else 0.0
            out[page] = due_after_days_scalar(index, alpha[page], evidence)
