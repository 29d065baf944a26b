"""The smoothed maximum likelihood of (α, κ): the lab's reference estimator.

Model ([N] appendix E; Cho & Garcia-Molina 2003): a crawl after t days and n signals finds a change
with probability 1 − e^{−s}, s = α t + κ n. The log-likelihood is concave in (α, κ) ≥ 0, but its
maximum runs away on pages where every, or no, crawl found a change. So the histories are smoothed
in the manner of [K] algorithm 4 by pseudo-records on both axes, each once changed and once
unchanged: an interval of `pseudo_interval` days without signals, and one signal without time,
weighing `pseudo_signal_weight`. The maximum is then inside, unique and finite. On the page's time
axis alone this is [K]'s smoothed equation 10; on the signal axis it puts a Beta(w, w)-shaped
weight on the precision 1 − e^{−κ}.

Rates per day, times in days.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Flags, Floats, Integers, ragged_histories
from shared.policy.estimation.smoothed_kernel import fit_every_page, fit_ring_pages

PSEUDO_INTERVAL = 0.5
"""Days of the pseudo-interval without signals, [K] algorithm 4 line 11."""

PSEUDO_SIGNAL_WEIGHT = 0.5
"""Weight of the two pseudo-records (changed, unchanged) with one signal and no time."""

PSEUDO_SIGNALS = 0.5
PSEUDO_DAYS = 0.5
"""Added to the signals and the days of a page that sends signals, [K] algorithm 4 line 13."""


REMEMBERED_SIGNALS = 64.0
"""About so many of a page's last signals its γ goes by (`signal_rate_after`)."""


class SmoothedFit(NamedTuple):
    """Columns of fitted parameters, one value a page, shape (pages,)."""

    unsignalled_change_rate: Floats
    """α, per day."""
    signal_evidence: Floats
    """κ, dimensionless; ln 2 for a page that never had a signal (the pseudo-records alone)."""
    unsignalled_change_rate_error: Floats
    """Standard error of α from the observed information, per day."""
    signal_evidence_error: Floats
    """Standard error of κ from the observed information."""
    iterations: Integers
    """Newton iterations spent."""


class SmoothedColumns(NamedTuple):
    """Where `fit_rings` writes: four arrays of shape (pages,), any float type, changed in place."""

    unsignalled_change_rate: NDArray[Any]
    signal_evidence: NDArray[Any]
    unsignalled_change_rate_error: NDArray[Any]
    signal_evidence_error: NDArray[Any]


def fit_histories(
    intervals: Any,
    signals: Any,
    changed: Any,
    offsets: Any,
    pseudo_interval: float = PSEUDO_INTERVAL,
    pseudo_signal_weight: float = PSEUDO_SIGNAL_WEIGHT,
) -> SmoothedFit:
    """Fit (α, κ) of every page of ragged histories.

    `intervals` (m,) days, `signals` (m,) or (m, K) counts (sources are added up), `changed` (m,),
    `offsets` (pages + 1,): see `histories`. The standard errors are square roots of the diagonal
    of the inverse observed information of the smoothed likelihood at its maximum, so they stay
    finite where the data alone say nothing.

    Raises ValueError on malformed histories or smoothing that is not positive.
    """
    _check_smoothing(pseudo_interval, pseudo_signal_weight)
    histories = ragged_histories(intervals, signals, changed, offsets)
    results = np.zeros((histories.pages, 4))
    iterations = np.zeros(histories.pages, dtype=np.int64)
    fit_every_page(
        histories.intervals,
        histories.signals,
        histories.changed,
        histories.offsets,
        pseudo_interval,
        pseudo_signal_weight,
        results,
        iterations,
    )
    columns = [np.ascontiguousarray(column) for column in results.T]
    return SmoothedFit(columns[0], columns[1], columns[2], columns[3], iterations)


def fit_rings(
    pages: Integers,
    intervals: NDArray[Any],
    signals: NDArray[Any],
    changed: Flags,
    count: NDArray[Any],
    out: SmoothedColumns,
    pseudo_interval: float = PSEUDO_INTERVAL,
    pseudo_signal_weight: float = PSEUDO_SIGNAL_WEIGHT,
) -> None:
    """Fit the pages of index array `pages` from ring buffers and write their rows of `out`.

    `intervals` (pages, H) days; `signals` (pages, H) or (pages, H, K) counts; `changed`
    (pages, H); `count` (pages,) records ever seen. Nothing is copied and other rows of `out` stay
    as they are. Intervals that are NaN or negative count as zero length. Releases the
    interpreter's lock, so disjoint `pages` may be fitted from several threads at once.

    Raises ValueError when shapes do not fit or smoothing is not positive.
    """
    _check_smoothing(pseudo_interval, pseudo_signal_weight)
    layers = check_rings(pages, intervals, signals, changed, count)
    fit_ring_pages(
        pages, intervals, layers, changed, count, pseudo_interval, pseudo_signal_weight, *out
    )


def signal_rates(
    signals: Any,
    days: Any,
    pseudo_signals: float = PSEUDO_SIGNALS,
    pseudo_days: float = PSEUDO_DAYS,
) -> Floats:
    """γ̂ = (signals + pseudo_signals)/(days + pseudo_days), per day; exactly 0 without any signal.

    `signals` and `days` broadcast: total count and total days watched. The rate of *all* signals
    is observed directly ([N] appendix E). A page that never sent one keeps rate 0, so that its
    value is the exact no-signal form instead of that of a rare signal which nobody has seen.

    Raises ValueError on negative or non-finite input.
    """
    counts = np.asarray(signals, dtype=np.float64)
    watched = np.asarray(days, dtype=np.float64)
    for name, values in (("signals", counts), ("days", watched)):
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"{name} must be finite and ≥ 0; got {values[~(values >= 0)][:1]}")
    if not (pseudo_signals >= 0 and pseudo_days > 0):
        raise ValueError("pseudo_signals must be ≥ 0 and pseudo_days > 0")
    smoothed = (counts + pseudo_signals) / (watched + pseudo_days)
    return np.asarray(np.where(counts > 0, smoothed, 0.0), dtype=np.float64)


@compiled
def signal_rate(
    signals: float,
    days: float,
    pseudo_signals: float = PSEUDO_SIGNALS,
    pseudo_days: float = PSEUDO_DAYS,
) -> float:
    """`signal_rates` of one page, of input that is known to be sound."""
    return (signals + pseudo_signals) / (days + pseudo_days) if signals > 0 else 0.0


@compiled
def signal_rate_after(rate: float, watched: float, days: float, signals: float) -> float:
    """γ̂ of a page after so many more days with so many signals.

    γ̂ ← (γ̂ w + n)/(w + t),  w = min(T + ½, K/γ̂), T the days that it was `watched` for before

    With K = REMEMBERED_SIGNALS. Up to K signals that is `signal_rate` of all of them; of more, 1/γ̂
    forgets older gaps between signals exponentially, each with 1/(K + 1). So a source that begins
    after a year, or falls silent, is known for it after some K gaps, as long as they are.
    """
    if not rate > 0.0:
        return signal_rate(signals, watched + days)
    memory = min(watched + PSEUDO_DAYS, REMEMBERED_SIGNALS / rate)
    return (rate * memory + signals) / (memory + days)


def check_rings(
    pages: Integers,
    intervals: NDArray[Any],
    signals: NDArray[Any],
    changed: Flags,
    count: NDArray[Any],
) -> NDArray[Any]:
    """Check that ring buffers fit one another; return `signals` as a (pages, H, K) view.

    Raises ValueError when a shape is wrong or `pages` names a row that does not exist.
    """
    shape = intervals.shape
    if len(shape) != 2 or changed.shape != shape or signals.shape[:2] != shape:
        raise ValueError(
            f"rings need intervals and changed (pages, H) and signals (pages, H[, K]); got "
            f"{shape}, {changed.shape} and {signals.shape}"
        )
    if signals.ndim not in (2, 3) or count.shape != shape[:1]:
        raise ValueError(f"signals is {signals.shape} and count {count.shape} for rings {shape}")
    if pages.size and not (pages.min() >= 0 and pages.max() < shape[0]):
        raise ValueError(
            f"pages to fit lie in [{pages.min()}, {pages.max()}], the rings hold {shape[0]} pages"
        )
    return signals if signals.ndim == 3 else signals[:, :, np.newaxis]


def _check_smoothing(pseudo_interval: float, pseudo_signal_weight: float) -> None:
    if not (0 < pseudo_interval < np.inf and 0 < pseudo_signal_weight < np.inf):
        raise ValueError(
            f"smoothing must be positive: pseudo_interval={pseudo_interval} days, "
            f"pseudo_signal_weight={pseudo_signal_weight}"
        )
