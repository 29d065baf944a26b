"""The harmonic objective: crawl values for the penalty H_n of [K], which never starves a page.

V is unbounded in time, so every page that changes is worth a crawl in the end.  Without signals
V = μ(t − (1−e^{−Δt})/Δ); where every change is signalled and none falsely, V = μn/Δ.  With noisy
signals the *Ein form* orders states by αt + pn and is the one to schedule with (it costs 0.02 to
0.24 % more than the exact order); the exact one, by quadrature, takes about a millisecond a page.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from shared.policy.compiled import compiled
from shared.policy.kernels.harmonic import (
    ein_value_and_psi,
    exact_value_and_psi,
    harmonic_age,
    staircase_value,
    unit_harmonic,
    unit_harmonic_inverse,
)
from shared.policy.kernels.special import MOST_COUNTED
from shared.policy.model import Column, as_columns


def harmonic_value(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
    *,
    exact: bool = False,
) -> Column:
    """Harmonic crawl value of each page, ``elapsed_days`` and ``signals`` after its last crawl.

    ``exact`` orders the states of pages with noisy signals by their expected penalty instead of by
    the Ein form.
    """
    columns = as_columns(importance, alpha, kappa, gamma, elapsed_days, signals)
    out = np.empty(len(columns[0]))
    _fill_values(out, exact, *columns)
    return out


def harmonic_penalty(
    alpha: ArrayLike, kappa: ArrayLike, elapsed_days: ArrayLike, signals: ArrayLike
) -> Column:
    """c(t, n): the expected H of the number of unseen changes."""
    columns = as_columns(alpha, kappa, elapsed_days, signals)
    out = np.empty(len(columns[0]))
    _fill_penalties(out, *columns)
    return out


def harmonic_threshold(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    threshold: ArrayLike,
) -> tuple[Column, Column]:
    """(a*, f): a page is due once αt + pn ≥ a*; f is its crawl rate per day then.

    p = 1 − e^{−κ} is a signal's share.  The inverse of :func:`harmonic_value` in the Ein form;
    infinite and 0 for pages that never change or have no importance.
    """
    columns = as_columns(importance, alpha, kappa, gamma, threshold)
    age = np.empty(len(columns[0]))
    rate = np.empty(len(columns[0]))
    _fill_thresholds(age, rate, *columns)
    return age, rate


@compiled
def harmonic_value_scalar(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: float, exact: bool
) -> float:
    """V/μ of one page; the scalar kernel of :func:`harmonic_value`."""
    elapsed = max(elapsed, 0.0)
    precision = -math.expm1(-kappa)
    if not (gamma > 0.0 and kappa > 0.0):
        # Signals of which no more are expected: the limit of those that come ever more seldom.
        age = alpha * elapsed + precision * signals
        return unit_harmonic(age) / alpha if alpha > 0.0 else 0.0
    if not alpha > 0.0:
        return staircase_value(kappa, gamma, signals)
    if exact:
        return exact_value_and_psi(alpha, precision, gamma, elapsed, signals)[0]
    return ein_value_and_psi(alpha, precision, gamma, elapsed, signals)[0]


@compiled
def harmonic_threshold_scalar(
    alpha: float, kappa: float, gamma: float, target: float
) -> tuple[float, float]:
    """(a*, ψ) of one page at ``target`` = Λ/μ days."""
    if not target > 0.0:
        return 0.0, 0.0
    if not (gamma > 0.0 and kappa > 0.0):
        if not alpha > 0.0:
            return math.inf, math.inf
        unit = unit_harmonic_inverse(alpha * target)
        return unit, unit / alpha
    precision = -math.expm1(-kappa)
    if not alpha > 0.0:
        return _staircase_threshold(kappa, gamma, target, precision)
    return _ein_threshold(alpha, precision, gamma, target)


@compiled
def _ein_threshold(
    alpha: float, precision: float, gamma: float, target: float
) -> tuple[float, float]:
    """(a*, ψ) in the Ein form: Newton's steps between bounds, on V as seen through u − (1−e^{−u}).

    Whole signals and the days left over carry the age, so that no digit is lost where a signal
    counts as more days than anyone waits.
    """
    change_rate = alpha + gamma * precision
    unit = unit_harmonic_inverse(change_rate * target)
    age = alpha * unit / change_rate
    low, high, growth = 0.0, math.inf, 2.0
    psi = 0.0
    for _ in range(200):
        signals = float(np.floor(age / precision))
        days = max(age - signals * precision, 0.0) / alpha
        value, psi = ein_value_and_psi(alpha, precision, gamma, days, signals)
        if value >= target:
            high = age
        else:
            low = age
        reached = unit_harmonic_inverse(change_rate * value)
        slope = -math.expm1(-age) / age * psi * change_rate
        step = (reached - unit) * -math.expm1(-reached) / slope
        following = age - step
        if abs(step) <= 1e-10 * age:
            break
        if not low < following < high:
            if high == math.inf:
                following = growth * age
                growth *= growth
            elif low < 0.01 * high:
                following = math.sqrt(max(low, 1e-300) * high)
            else:
                following = 0.5 * (low + high)
        age = following
    return age, psi


@compiled
def _staircase_threshold(
    kappa: float, gamma: float, target: float, precision: float
) -> tuple[float, float]:
    """(a*, ψ) where every change is signalled: the first whole number of signals."""
    high = 1.0
    while staircase_value(kappa, gamma, high) < target:
        high *= 2.0
    low = np.floor(0.5 * high)
    # Beyond what can be counted one by one nobody lives to see the difference.
    while high - low > 1.0 and high < MOST_COUNTED:
        middle = np.floor(0.5 * (low + high))
        if staircase_value(kappa, gamma, middle) < target:
            low = middle
        else:
            high = middle
    return precision * high, high / gamma


@compiled
def _fill_values(
    out: Column,
    exact: bool,
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
            out[page] = importance[page] * harmonic_value_scalar(
                alpha[page], kappa[page], gamma[page], elapsed[page], signals[page], exact
            )


@compiled
def _fill_penalties(
    out: Column, alpha: Column, kappa: Column, elapsed: Column, signals: Column
) -> None:
    for page in range(out.size):
        precision = -math.expm1(-kappa[page])
        out[page] = harmonic_age(alpha[page], precision, elapsed[page], signals[page])


@compiled
def _fill_thresholds(
    age: Column,
    rate: Column,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    threshold: Column,
) -> None:
    for page in range(age.size):
        if threshold[page] > 0.0 and not importance[page] > 0.0:
            age[page], rate[page] = np.inf, 0.0
            continue
        target = threshold[page] / importance[page] if threshold[page] > 0.0 else 0.0
        age[page], psi = harmonic_threshold_scalar(alpha[page], kappa[page], gamma[page], target)
        rate[page] = 1.0 / psi
