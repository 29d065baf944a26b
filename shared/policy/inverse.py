"""The inverse of the crawl value: when does each page reach a threshold Λ?

A page is due once its staleness exponent s = αt + e reaches s* (:func:`threshold_staleness`).  The
same state as an equivalent time is ι = s*/α days (:func:`threshold_time`); it is infinite where
α = 0, although signals can make such a page due, so schedulers keep s*.
"""

import numpy as np
from numpy.typing import ArrayLike

from shared.policy.compiled import compiled
from shared.policy.kernels.threshold import due_after_days_scalar, threshold_staleness_scalar
from shared.policy.model import Column, as_columns

__all__ = [
    "due_after_days",
    "due_after_days_scalar",
    "threshold_staleness",
    "threshold_staleness_scalar",
    "threshold_time",
    "threshold_time_and_rate",
]


def threshold_staleness(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    threshold: ArrayLike,
) -> tuple[Column, Column]:
    """(s*, f): the staleness exponent at which V = ``threshold``, and crawls per day at it.

    Where V never gets there (Λ ≥ μ/Δ) s* is infinite and f is 0; where Λ ≤ 0, s* is 0 and f
    infinite.  ``threshold`` may differ by page (λ₀ + λ_i of its host).
    """
    columns = as_columns(importance, alpha, kappa, gamma, threshold)
    staleness = np.empty(len(columns[0]))
    rate = np.empty(len(columns[0]))
    _fill_thresholds(staleness, rate, *columns)
    return staleness, rate


def threshold_time_and_rate(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    threshold: ArrayLike,
) -> tuple[Column, Column]:
    """(ι, f): V⁻¹(Λ) in days, infinite where time alone never gets there, and crawls per day."""
    staleness, rate = threshold_staleness(importance, alpha, kappa, gamma, threshold)
    rates = as_columns(alpha, staleness)[0]
    iota = np.where(staleness > 0, np.inf, 0.0)
    np.divide(staleness, rates, out=iota, where=rates > 0)
    return iota, rate


def threshold_time(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    threshold: ArrayLike,
) -> Column:
    """ι = V⁻¹(Λ): the equivalent days t + nβ at which each page's value reaches Λ."""
    return threshold_time_and_rate(importance, alpha, kappa, gamma, threshold)[0]


def due_after_days(staleness_threshold: ArrayLike, alpha: ArrayLike, evidence: ArrayLike) -> Column:
    """Days after its last crawl at which each page with ``evidence`` e = Σκ_k n_k is due.

    0 where the signals alone make it due, infinite where only further signals can.
    """
    columns = as_columns(staleness_threshold, alpha, evidence)
    due = np.empty(len(columns[0]))
    _fill_due(due, *columns)
    return due


@compiled
def _fill_thresholds(
    staleness: Column,
    rate: Column,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    threshold: Column,
) -> None:
    for page in range(staleness.size):
        if threshold[page] > 0.0 and not importance[page] > 0.0:
            staleness[page], rate[page] = np.inf, 0.0
            continue
        target = 0.0
        if threshold[page] > 0.0:
            target = threshold[page] / importance[page]
        staleness[page], psi = threshold_staleness_scalar(
            alpha[page], kappa[page], gamma[page], target
        )
        rate[page] = 1.0 / psi


@compiled
def _fill_due(
    out: Column,
    staleness: Column,
    alpha: Column,
    evidence: Column,
) -> None:
    for page in range(out.size):
        out[page] = due_after_days_scalar(staleness[page], alpha[page], evidence[page])
