"""Burst multipliers: how much faster or slower than usual a page changes, given its last change.

Changes cluster: a page that has just changed is likely to change again, one that has been quiet for
months is not. Each host keeps, for six bins of *age* (days from the last observed change to the
last crawl), the multiplier M_b by which the rate α̂ of its pages falls short of, or exceeds, what
their crawls find (design: production estimator, point 2; an EM step for a common factor on Poisson
rates that are seen only as changed/unchanged):

    on a crawl after t days with no signal: x₀ = α̂ t, x = M_b x₀,
    E_b += w z x/(1 − e^{−x})   (the expected number of changes, given the outcome z)
    X_b += w x₀                 (the number that α̂ alone predicts)
    M_b = clip(E_b/X_b, 0.1, 10)

The weight w = min(1, 3/x₀) lets one interval count for three changes at most; as it does not know
the outcome, M is the same in the mean. Both tables start at PRIOR_CHANGES, so M starts at 1, and
remember the last MOST_REMEMBERED predicted changes. A page's bin is read when it is crawled and
holds until its next crawl: in that interval its effective rate is M α, or, the same thing, its
effective days are M t. All functions are compiled scalars, to be called from other compiled loops
as well as from Python.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats, sane_interval

AGE_BINS = 6
"""Never changed; just changed; under 7, 30, 120 days ago; longer ago."""

PRIOR_CHANGES = 5.0
"""Where E_b and X_b start: five changes' worth of belief that M = 1."""

LEAST_SIGNALS, LEAST_PRECISION = 5.0, 0.1
"""Bursts are used on hosts of which so many signals were seen of sources that are so often true."""

MOST_OF_AN_INTERVAL = 3.0
"""Predicted changes' worth that one interval counts for at most. What α̂ says of months, where it
was learned in seconds, is more than its host's other pages say in years, and is wrong."""

MOST_REMEMBERED = 200.0
"""Predicted changes' worth of the past that stays. More than that is forgotten in equal shares by E
and X; so is, with time, what intervals came to while they counted for any number."""

SMALLEST_MULTIPLIER = 0.1
LARGEST_MULTIPLIER = 10.0


@compiled
def age_bin(days_since_change: float) -> int:
    """Bin of a page's age at its last crawl.

    `days_since_change` is the time from the last observed change to that crawl, in days: 0 if the
    crawl itself found the change, infinite (or NaN) if no change was ever observed. Bins: 0 never,
    1 just changed, 2 under 7 days, 3 under 30, 4 under 120, 5 longer ago.
    """
    if not days_since_change < math.inf:
        return 0
    if days_since_change <= 1e-9:
        return 1
    if days_since_change < 7.0:
        return 2
    if days_since_change < 30.0:
        return 3
    if days_since_change < 120.0:
        return 4
    return 5


@compiled
def burst_multiplier(expected_changes: float, predicted_changes: float) -> float:
    """M_b = clip(E_b/X_b, 0.1, 10) from one cell of a host's tables; 1 for an empty cell."""
    if not (expected_changes > 0.0 and predicted_changes > 0.0):
        return 1.0
    ratio = expected_changes / predicted_changes
    return min(max(ratio, SMALLEST_MULTIPLIER), LARGEST_MULTIPLIER)


@compiled
def changes_if_changed(exponent: float) -> float:
    """Expected number of changes in an interval in which there was one, x/(1 − e^{−x})."""
    return -exponent / math.expm1(-exponent) if exponent > 1e-9 else 1.0


@compiled
def trusts_bursts(signals: Any, precision: Any) -> bool:
    """Whether a host's bursts are used: only where its signals prove true.

    `signals` (K,) counts the host's signals by source, `precision` (K,) is how often they are
    true. Where changes come without a signal, a page's quiet says little of what it missed, and
    multipliers were found to do harm as often as good; they need LEAST_SIGNALS signals of sources
    of a precision of LEAST_PRECISION. What the others send takes nothing from that, however much it
    is. The tables are kept in any case.
    """
    total = 0.0
    for source in range(len(signals)):
        if precision[source] >= LEAST_PRECISION:
            total += signals[source]
    return total >= LEAST_SIGNALS


@compiled
def counted(
    expected: float, predicted: float, of_interval: float, factor: float, changed: bool
) -> tuple[float, float]:
    """E and X after an interval, by its weight, with what is remembered of those before.

    Args:
        expected: E.
        predicted: X.
        of_interval: x₀, what is predicted of it.
        factor: by which that is thought to be wrong (M, Q).
        changed: whether its crawl found a change.
    """
    weight = MOST_OF_AN_INTERVAL / max(of_interval, MOST_OF_AN_INTERVAL)
    if changed:
        expected += weight * changes_if_changed(factor * of_interval)
    predicted += weight * of_interval
    share = MOST_REMEMBERED / max(predicted, MOST_REMEMBERED)
    return share * expected, share * predicted


@compiled
def update_bursts(
    expected_changes: Any,
    predicted_changes: Any,
    host: int,
    age: int,
    unsignalled_change_rate: float,
    days: float,
    changed: bool,
) -> float:
    """Take one crawl *without signals in its interval* into a host's tables, in place.

    `expected_changes` E and `predicted_changes` X are (hosts, 6) float arrays; `age` is the bin
    that held during the interval; `unsignalled_change_rate` α̂ (per day) and `days` (raw, not
    multiplied) are those of the page. Returns the new multiplier of the cell.
    """
    expected, predicted = expected_changes[host, age], predicted_changes[host, age]
    of_interval = unsignalled_change_rate * sane_interval(days)
    multiplier = burst_multiplier(expected, predicted)
    expected, predicted = counted(expected, predicted, of_interval, multiplier, changed)
    expected_changes[host, age], predicted_changes[host, age] = expected, predicted
    return burst_multiplier(expected, predicted)


@compiled
def bursts_trusted(signals: Any, precision: Any) -> NDArray[np.bool_]:
    """`trusts_bursts` of many hosts: both (hosts, K), the result (hosts,)."""
    trusted = np.empty(len(signals), np.bool_)
    for host in range(len(signals)):
        trusted[host] = trusts_bursts(signals[host], precision[host])
    return trusted


def initial_bursts(hosts: int) -> tuple[Floats, Floats]:
    """Fresh tables (E, X), each (hosts, 6): multiplier 1 everywhere."""
    shape = (hosts, AGE_BINS)
    return np.full(shape, PRIOR_CHANGES), np.full(shape, PRIOR_CHANGES)


def burst_multipliers(
    expected_changes: NDArray[Any], predicted_changes: NDArray[Any]
) -> NDArray[np.float64]:
    """`burst_multiplier` of whole tables, same shape."""
    filled = (expected_changes > 0) & (predicted_changes > 0)
    ratio = np.divide(
        expected_changes, predicted_changes, out=np.ones(expected_changes.shape), where=filled
    )
    clipped = np.clip(ratio, SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER)
    return np.asarray(clipped, dtype=np.float64)
