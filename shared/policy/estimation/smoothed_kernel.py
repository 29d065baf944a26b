"""Newton's method for the smoothed two-parameter likelihood of one page, compiled.

The negative log-likelihood of a page in x = α and y = κ is convex:

    f = Σ_unchanged (x t + y n) − Σ_changed ln(1 − e^{−(x t + y n)})
        + [x s₀ − ln(1 − e^{−x s₀})] + w [y − ln(1 − e^{−y})]

The unchanged records enter by their sums alone, so an iteration costs one exponential for each
*changed* record.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats, Integers, longest_history, sane_interval

MAX_ITERATIONS = 100
"""Newton needs about six; the limit only guards against a loop without end."""

DECREMENT_TOLERANCE = 1e-13
"""Stop after a step whose squared Newton decrement was below this: f is then exact to rounding."""

Row = NDArray[Any]


@compiled
def odds_of_change(exponent: float) -> float:
    """1/(e^s − 1), the odds of an unchanged page at staleness exponent s > 0."""
    return 1.0 / math.expm1(exponent) if exponent < 700.0 else 0.0


@compiled
def gather_changed(
    intervals: Row, signals: Row, changed: Row, records: int, days: Floats, counts: Floats
) -> tuple[int, float, float]:
    """Copy a page's changed records to `days` and `counts`; sum the unchanged ones.

    Signals are summed over sources. Returns (changed records, Σ days and Σ signals of the
    unchanged records).
    """
    found = 0
    quiet_days = 0.0
    quiet_signals = 0.0
    for record in range(records):
        count = 0.0
        for source in range(signals.shape[1]):
            count += signals[record, source]
        if changed[record]:
            days[found] = sane_interval(intervals[record])
            counts[found] = count
            found += 1
        else:
            quiet_days += sane_interval(intervals[record])
            quiet_signals += count
    return found, quiet_days, quiet_signals


@compiled
def stretched(value: float, step: float) -> float:
    """`value + step`, kept positive and within a factor five of `value`.

    A downward step is taken in 1/value, where the gradient of f is nearly a straight line.
    """
    relative = step / value
    if relative < 0.0:
        return value / min(1.0 - relative, 5.0)
    return value * min(1.0 + relative, 5.0)


@compiled
def scale_within(value: float, step: float) -> float:
    """The largest share, at most 1, of `step` that keeps `value` within a factor five of itself."""
    relative = step / value
    limit = -0.8 if relative < 0.0 else 4.0
    return 1.0 if relative == 0.0 else min(1.0, limit / relative)


@compiled
def slope_and_curvature(
    x: float,
    y: float,
    days: Floats,
    counts: Floats,
    found: int,
    quiet_days: float,
    quiet_signals: float,
    pseudo_interval: float,
    pseudo_weight: float,
) -> tuple[float, float, float, float, float]:
    """Gradient (f_x, f_y) and Hessian (f_xx, f_xy, f_yy) of f at (x, y)."""
    q = odds_of_change(x * pseudo_interval)
    gx = quiet_days + pseudo_interval * (1.0 - q)
    hxx = pseudo_interval * pseudo_interval * q * (1.0 + q)
    q = odds_of_change(y)
    gy = quiet_signals + pseudo_weight * (1.0 - q)
    hyy = pseudo_weight * q * (1.0 + q)
    hxy = 0.0
    for record in range(found):
        t = days[record]
        n = counts[record]
        q = odds_of_change(x * t + y * n)
        curvature = q * (1.0 + q)
        gx -= q * t
        gy -= q * n
        hxx += curvature * t * t
        hxy += curvature * t * n
        hyy += curvature * n * n
    return gx, gy, hxx, hxy, hyy


@compiled
def sound_determinant(hxx: float, hxy: float, hyy: float) -> float:
    """Determinant of a positive definite 2×2 matrix, above zero even where rounding eats it."""
    product = hxx * hyy
    return max(product - hxy * hxy, 1e-15 * product)


@compiled
def fit_records(
    days: Floats,
    counts: Floats,
    found: int,
    quiet_days: float,
    quiet_signals: float,
    pseudo_interval: float,
    pseudo_weight: float,
    result: Floats,
) -> int:
    """Minimise f; write (x, y, standard error of x, standard error of y) to `result` (4,).

    `found` changed records lie in `days` and `counts`; the sums are of the unchanged records.
    Returns the number of Newton iterations.
    """
    total_days = quiet_days + 2.0 * pseudo_interval
    any_signal = quiet_signals > 0.0
    for record in range(found):
        total_days += days[record]
        any_signal = any_signal or counts[record] > 0.0
    x = old_x = (found + 1.0) / total_days * (0.6 if any_signal else 1.2)
    y = old_y = 0.5 if any_signal else math.log(2.0)
    hxx = hxy = hyy = 1.0
    step_x, step_y, old_slope = 0.0, 0.0, -math.inf
    iterations = 0
    while iterations < MAX_ITERATIONS:
        iterations += 1
        gx, gy, hxx, hxy, hyy = slope_and_curvature(
            x, y, days, counts, found, quiet_days, quiet_signals, pseudo_interval, pseudo_weight
        )
        if gx * step_x + gy * step_y > -0.9 * old_slope:
            # Overshot: the slope along the last step is now steeply upwards. Go half of it.
            step_x *= 0.5
            step_y *= 0.5
            old_slope *= 0.5
            x, y = old_x + step_x, old_y + step_y
            continue
        determinant = sound_determinant(hxx, hxy, hyy)
        newton_x = (gy * hxy - gx * hyy) / determinant
        newton_y = (gx * hxy - gy * hxx) / determinant
        decrement = -(gx * newton_x + gy * newton_y)
        if not decrement > 0.0:
            break
        old_x, old_y = x, y
        x = stretched(x, newton_x)
        y = stretched(y, newton_y)
        if decrement < DECREMENT_TOLERANCE:
            break
        old_slope = gx * (x - old_x) + gy * (y - old_y)
        if old_slope > -0.1 * min(decrement, 1.0):
            # Bending the step has turned it uphill: take Newton's own direction, shortened.
            share = min(scale_within(old_x, newton_x), scale_within(old_y, newton_y))
            x, y = old_x + share * newton_x, old_y + share * newton_y
            old_slope = -share * decrement
        step_x, step_y = x - old_x, y - old_y
    determinant = sound_determinant(hxx, hxy, hyy)
    result[0] = x
    result[1] = y
    result[2] = math.sqrt(hyy / determinant)
    result[3] = math.sqrt(hxx / determinant)
    return iterations


@compiled
def fit_every_page(
    intervals: Floats,
    signals: Floats,
    changed: Row,
    offsets: Integers,
    pseudo_interval: float,
    pseudo_weight: float,
    results: Floats,
    iterations: Integers,
) -> None:
    """Fit each page of a ragged layout; `results` (pages, 4), `iterations` (pages,)."""
    days = np.empty(longest_history(offsets))
    counts = np.empty(days.size)
    for page in range(offsets.size - 1):
        begin = offsets[page]
        end = offsets[page + 1]
        found, quiet_days, quiet_signals = gather_changed(
            intervals[begin:end], signals[begin:end], changed[begin:end], end - begin, days, counts
        )
        iterations[page] = fit_records(
            days,
            counts,
            found,
            quiet_days,
            quiet_signals,
            pseudo_interval,
            pseudo_weight,
            results[page],
        )


@compiled
def fit_ring_pages(
    pages: Integers,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    pseudo_interval: float,
    pseudo_weight: float,
    unsignalled_change_rate: Row,
    signal_evidence: Row,
    unsignalled_change_rate_error: Row,
    signal_evidence_error: Row,
) -> None:
    """Fit the pages named in `pages` from their rings and write their columns in place."""
    depth = intervals.shape[1]
    days = np.empty(depth)
    counts = np.empty(depth)
    result = np.empty(4)
    for index in range(pages.size):
        page = pages[index]
        records = min(count[page], depth)
        found, quiet_days, quiet_signals = gather_changed(
            intervals[page], signals[page], changed[page], records, days, counts
        )
        fit_records(
            days,
            counts,
            found,
            quiet_days,
            quiet_signals,
            pseudo_interval,
            pseudo_weight,
            result,
        )
        unsignalled_change_rate[page] = result[0]
        signal_evidence[page] = result[1]
        unsignalled_change_rate_error[page] = result[2]
        signal_evidence_error[page] = result[3]
