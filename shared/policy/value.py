"""The crawl value of columns of pages: what crawling each one now is worth.

Sources: [N] theorem 1 and lemma 4, [B] for pages without signals; limits and stable forms in
:mod:`shared.policy.kernels.noisy`.  All functions take columns (or numbers, repeated for every
page) and return columns; rates are per day, times in days.  No input inside the model gives NaN.
"""

import math

import numba
import numpy as np
from numpy.typing import ArrayLike

from shared.policy.compiled import compiled, compiled_parallel
from shared.policy.kernels.crawl_value import (
    change_rate_scalar,
    crawl_value_scalar,
    staleness_scalar,
    value_and_psi,
    value_at_evidence,
)
from shared.policy.model import Column, as_columns
from shared.policy.threads import thread_count

__all__ = [
    "crawl_rate",
    "crawl_value",
    "crawl_value_at_evidence",
    "crawl_value_scalar",
    "crawl_value_slope",
    "freshness",
    "intervals",
    "value_and_psi",
    "value_at_evidence",
]


def crawl_value(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
    *,
    out: Column | None = None,
    threads: int = 1,
) -> Column:
    """V of each page ``elapsed_days`` and ``signals`` (a count) after its last crawl.

    Written to ``out`` if given (float64, one row a page).  With ``threads`` > 1 the rows are
    spread over numba's threads; otherwise it runs in the caller's, without the interpreter lock.
    """
    columns = as_columns(importance, alpha, kappa, gamma, elapsed_days, signals)
    result = np.empty(len(columns[0])) if out is None else out
    if threads > 1:
        with thread_count(threads):
            _fill_values_parallel(result, *columns)
    else:
        _fill_values(result, *columns)
    return result


def crawl_value_at_evidence(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    evidence: ArrayLike,
    *,
    out: Column | None = None,
) -> Column:
    """As :func:`crawl_value`, from the summed evidence e = Σκ_k n_k of signals of any sources.

    The state counts as ι = t + e/α days; e = nκ gives what n signals give.
    """
    columns = as_columns(importance, alpha, kappa, gamma, elapsed_days, evidence)
    result = np.empty(len(columns[0])) if out is None else out
    _fill_values_at_evidence(result, *columns)
    return result


def intervals(
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
) -> tuple[Column, Column]:
    """(ψ, w): days between crawls, and fresh days among them, of the policy that crawls here."""
    columns = as_columns(alpha, kappa, gamma, elapsed_days, signals)
    psi = np.empty(len(columns[0]))
    fresh = np.empty(len(columns[0]))
    _fill_intervals(psi, fresh, *columns)
    return psi, fresh


def crawl_rate(
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
) -> Column:
    """f = 1/ψ: crawls per day of the policy that crawls each page whenever it is in this state."""
    psi, _ = intervals(alpha, kappa, gamma, elapsed_days, signals)
    rate = np.full(len(psi), np.inf)
    np.divide(1.0, psi, out=rate, where=psi > 0)
    return rate


def crawl_value_slope(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
) -> Column:
    """∂V/∂t = μαe^{−s}ψ, per day: how fast the value grows while no signal comes."""
    columns = as_columns(importance, alpha, kappa, gamma, elapsed_days, signals)
    result = np.empty(len(columns[0]))
    _fill_slopes(result, *columns)
    return result


def freshness(alpha: ArrayLike, elapsed_days: ArrayLike, evidence: ArrayLike) -> Column:
    """P(fresh) = e^{−s}, s = αt + e with e = Σκ_k n_k [N, equation 1]."""
    columns = as_columns(alpha, elapsed_days, evidence)
    result = np.empty(len(columns[0]))
    _fill_freshness(result, *columns)
    return result


@compiled
def _fill_values(
    out: Column,
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
            out[page] = (
                importance[page]
                * value_and_psi(
                    alpha[page], kappa[page], gamma[page], elapsed[page], signals[page]
                )[0]
            )


@compiled_parallel
def _fill_values_parallel(
    out: Column,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    elapsed: Column,
    signals: Column,
) -> None:
    for page in numba.prange(out.size):
        out[page] = 0.0
        if importance[page] > 0.0:
            out[page] = (
                importance[page]
                * value_and_psi(
                    alpha[page], kappa[page], gamma[page], elapsed[page], signals[page]
                )[0]
            )


@compiled
def _fill_values_at_evidence(
    out: Column,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    elapsed: Column,
    evidence: Column,
) -> None:
    for page in range(out.size):
        out[page] = crawl_value_scalar(
            importance[page], alpha[page], kappa[page], gamma[page], elapsed[page], evidence[page]
        )


@compiled
def _fill_intervals(
    psi: Column,
    fresh: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    elapsed: Column,
    signals: Column,
) -> None:
    for page in range(psi.size):
        value, psi[page] = value_and_psi(
            alpha[page], kappa[page], gamma[page], elapsed[page], signals[page]
        )
        evidence = kappa[page] * signals[page] if signals[page] > 0.0 else 0.0
        stale = staleness_scalar(alpha[page], elapsed[page], evidence)
        if change_rate_scalar(alpha[page], kappa[page], gamma[page]) > 0.0:
            fresh[page] = value + (math.exp(-stale) * psi[page] if stale < math.inf else 0.0)
        else:
            fresh[page] = psi[page]


@compiled
def _fill_slopes(
    out: Column,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    elapsed: Column,
    signals: Column,
) -> None:
    for page in range(out.size):
        out[page] = 0.0
        if importance[page] > 0.0 and alpha[page] > 0.0:
            evidence = kappa[page] * signals[page] if signals[page] > 0.0 else 0.0
            stale = staleness_scalar(alpha[page], elapsed[page], evidence)
            if stale < math.inf:
                psi = value_and_psi(
                    alpha[page], kappa[page], gamma[page], elapsed[page], signals[page]
                )[1]
                out[page] = importance[page] * alpha[page] * math.exp(-stale) * psi


@compiled
def _fill_freshness(
    out: Column,
    alpha: Column,
    elapsed: Column,
    evidence: Column,
) -> None:
    for page in range(out.size):
        out[page] = math.exp(-staleness_scalar(alpha[page], elapsed[page], evidence[page]))
