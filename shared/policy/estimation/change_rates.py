"""Simple estimators: change rates by [K] equations 10 and 11, and naive precision and recall.

Rates per day, times in days. These ignore signals, or take them at their word; they are for the
lab, where policies of the literature are compared.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import (
    Floats,
    Integers,
    ragged_histories,
    sane_interval,
)
from shared.policy.estimation.smoothed_kernel import odds_of_change, stretched

PSEUDO_INTERVAL = 0.5
"""Days of the two imaginary intervals, one changed, one not: [K] algorithm 4 line 11."""

PSEUDO_CHANGES = 0.5
"""Imaginary changes, in as many imaginary days: [K] algorithm 4 line 13."""


class NaivePrecisionRecall(NamedTuple):
    """Shares of crawl intervals, shape (pages,)."""

    precision: Floats
    """Intervals with a signal and a change, over intervals with a signal; 0 where none."""
    recall: Floats
    """Intervals with a signal and a change, over intervals with a change; 0 where none."""


def change_rates_from_crawls(
    intervals: Any, changed: Any, offsets: Any, pseudo_interval: float = PSEUDO_INTERVAL
) -> Floats:
    """Δ̂ of every page by [K] equation 10: the maximum likelihood from crawls alone.

    Solves Σ_changed a/(e^{aΔ} − 1) = Σ_unchanged a over the intervals a of ragged histories, with
    one changed and one unchanged imaginary interval of `pseudo_interval` days. Shape (pages,),
    per day. With `pseudo_interval=0` it is the unsmoothed estimator of Cho & Garcia-Molina: 0
    where no crawl (or there was none), infinite where every crawl found a change.

    Raises ValueError on malformed histories or a negative `pseudo_interval`.
    """
    if not 0 <= pseudo_interval < math.inf:
        raise ValueError(f"pseudo_interval is {pseudo_interval} days, must be ≥ 0 and finite")
    days = np.asarray(intervals, dtype=np.float64)
    histories = ragged_histories(days, np.zeros(days.shape), changed, offsets)
    rates = np.zeros(histories.pages)
    _solve_every_page(
        histories.intervals, histories.changed, histories.offsets, pseudo_interval, rates
    )
    return rates


def change_rates_from_complete_signals(
    changes: Any, days: Any, pseudo_changes: float = PSEUDO_CHANGES
) -> Floats:
    """Δ̂ = (U + ½)/(T + ½): [K] algorithm 4 line 13, where every change sends a signal.

    `changes` U and `days` T broadcast; per day. `pseudo_changes` replaces both halves.

    Raises ValueError on input that is negative or not finite, or `pseudo_changes` not positive.
    """
    if not 0 < pseudo_changes < math.inf:
        raise ValueError(f"pseudo_changes is {pseudo_changes}, must be positive")
    counts, watched = _counts_and_days(changes, days)
    return np.asarray((counts + pseudo_changes) / (watched + pseudo_changes), dtype=np.float64)


def observation_rates(changes: Any, days_to_last_change: Any) -> Floats:
    """Δ̂ = (U + 1)/t_U: [K] equation 11, unsmoothed. Infinite where t_U is 0.

    `changes` U seen, the last of them `days_to_last_change` t_U after watching began; per day.

    Raises ValueError on input that is negative or not finite.
    """
    counts, watched = _counts_and_days(changes, days_to_last_change)
    with np.errstate(divide="ignore"):
        return np.asarray((counts + 1.0) / watched, dtype=np.float64)


def naive_precision_recall(
    intervals: Any, signals: Any, changed: Any, offsets: Any
) -> NaivePrecisionRecall:
    """Precision and recall of signals counted over crawl intervals ([N] appendix E, corrected).

    The text divides both counts by the intervals with a change; precision divides by those *with a
    signal*. Several signals or changes in an interval count once, so both are biased upwards when
    crawls are rare: that is the point of [N] figure 10. Signals of all sources count alike.

    Raises ValueError on malformed histories.
    """
    histories = ragged_histories(intervals, signals, changed, offsets)
    signalled = histories.signals.sum(axis=1) > 0
    changes = histories.changed > 0
    owner = np.repeat(np.arange(histories.pages), np.diff(histories.offsets))
    both, with_signal, with_change = (
        np.bincount(owner, rows, histories.pages)
        for rows in (signalled & changes, signalled, changes)
    )
    return NaivePrecisionRecall(
        np.divide(both, with_signal, out=np.zeros(both.size), where=with_signal > 0),
        np.divide(both, with_change, out=np.zeros(both.size), where=with_change > 0),
    )


def _counts_and_days(changes: Any, days: Any) -> tuple[Floats, Floats]:
    counts = np.asarray(changes, dtype=np.float64)
    watched = np.asarray(days, dtype=np.float64)
    for name, values in (("changes", counts), ("days", watched)):
        good = np.isfinite(values) & (values >= 0)
        if not good.all():
            raise ValueError(f"{name} must be finite and ≥ 0; got {values[~good].flat[0]}")
    return counts, watched


@compiled
def _solve_every_page(
    intervals: Floats,
    changed: NDArray[Any],
    offsets: Integers,
    pseudo_interval: float,
    rates: Floats,
) -> None:
    for page in range(offsets.size - 1):
        begin, end = offsets[page], offsets[page + 1]
        quiet, found, total = pseudo_interval, 0.0, 2.0 * pseudo_interval
        for record in range(begin, end):
            days = sane_interval(intervals[record])
            total += days
            if changed[record]:
                found += 1.0
            else:
                quiet += days
        if pseudo_interval > 0.0:
            found += 1.0
        if found == 0.0:
            rates[page] = 0.0
        elif quiet == 0.0:
            rates[page] = math.inf
        else:
            rates[page] = _solve(
                intervals[begin:end], changed[begin:end], pseudo_interval, quiet, found / total
            )


@compiled
def _solve(
    intervals: Floats, changed: NDArray[Any], pseudo_interval: float, quiet: float, start: float
) -> float:
    """Newton from `start`, which lies left of the root: the gradient rises and is concave there."""
    rate = start
    for _ in range(100):
        gradient, curvature = quiet, 0.0
        if pseudo_interval > 0.0:
            q = odds_of_change(rate * pseudo_interval)
            gradient -= pseudo_interval * q
            curvature += pseudo_interval * pseudo_interval * q * (1.0 + q)
        for record in range(intervals.size):
            if changed[record]:
                days = sane_interval(intervals[record])
                q = odds_of_change(rate * days)
                gradient -= days * q
                curvature += days * days * q * (1.0 + q)
        if not curvature > 0.0:
            return rate
        step = -gradient / curvature
        rate = stretched(rate, step)
        if abs(step) < 1e-10 * rate:
            return rate
    return rate
