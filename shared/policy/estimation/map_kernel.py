"""Newton's method for the posterior mode of one page with several signal sources, compiled.

In x = (α, κ_1 … κ_K) the negative log-posterior of a page is

    f = R(α) − A ln α + Σ_k w [(1 − p_k) κ_k − p_k ln(1 − e^{−κ_k})]
        + Σ_unchanged s_j − Σ_changed ln(1 − e^{−s_j}),   s_j = α t_j + Σ_k κ_k n_jk

with R′(α) = min(B, (A + c)/α): the Gamma prior's Bα up to the knee (A + c)/B, and a logarithm
beyond (`map_fit`). It is convex below the knee; beyond, R alone is concave. Without R's curvature
there, R″ = −(A + c)/α², the Hessian is positive definite. So α comes last in Cholesky's order,
where R″ can be added to its pivot as far as that stays positive: Newton's own step near a mode, and
a step downhill everywhere.

A source that sent nothing in the records keeps the mode of its prior, κ_k = −ln(1 − p_k), and takes
no part in the iteration; unchanged records enter by their sums alone.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats, Integers, sane_interval
from shared.policy.estimation.smoothed_kernel import odds_of_change, scale_within, stretched

MAX_ITERATIONS = 100
"""Newton needs about five; the limit only guards against a loop without end."""

DECREMENT_TOLERANCE = 1e-13
"""Stop after a step whose squared Newton decrement was below this."""

LOWEST_PRECISION = 1e-6
HIGHEST_PRECISION = 1.0 - 1e-6
"""Prior precisions are held inside these, so that the mode of κ is positive and finite."""

TAIL = 1.1
"""c: changes' worth of pull by which the prior holds a rate beyond its knee (`map_fit`)."""

LEAST_PIVOT = 0.3
"""Share of α's pivot that stays when the curvature of the prior's tail is taken off."""

Row = NDArray[Any]


@compiled
def prior_rate(value: float, shape: float, rate: float) -> float:
    """R′(α), days: B up to the knee, and what keeps the prior's pull on ln α at −c beyond."""
    return min(rate, (shape + TAIL) / value)


@compiled
def gather_columns(
    intervals: Row, signals: Row, changed: Row, records: int, columns: Floats, quiet: Floats
) -> int:
    """Copy the changed records to rows of `columns` (·, 1 + K), sum the others in `quiet` (1 + K,).

    Column 0 is the time, the others the signals of each source. Returns the changed records.
    """
    found = 0
    quiet[:] = 0.0
    for record in range(records):
        days = sane_interval(intervals[record])
        if changed[record]:
            columns[found, 0] = days
            for source in range(signals.shape[1]):
                columns[found, source + 1] = signals[record, source]
            found += 1
        else:
            quiet[0] += days
            for source in range(signals.shape[1]):
                quiet[source + 1] += signals[record, source]
    return found


@compiled
def active_sources(
    prior: Floats, columns: Floats, found: int, quiet: Floats, active: Integers
) -> int:
    """List in `active` the columns with any data, the time last; returns how many.

    A source whose signals are never true by its prior (p ≤ LOWEST_PRECISION) is left out: the
    page's own records, however they fell, make nothing of it.
    """
    size = 0
    for column in range(1, quiet.size):
        total = quiet[column]
        for record in range(found):
            total += columns[record, column]
        if total > 0.0 and prior[column + 1] > LOWEST_PRECISION:
            active[size] = column
            size += 1
    active[size] = 0
    return size + 1


@compiled
def posterior_slope(
    x: Floats,
    prior: Floats,
    weight: float,
    columns: Floats,
    found: int,
    quiet: Floats,
    active: Integers,
    size: int,
    gradient: Floats,
    hessian: Floats,
) -> None:
    """Gradient and Hessian of f in the active columns, at `x`; the Hessian without R″.

    `prior` is (A, B, p_1 … p_K). `gradient` (1 + K,) and `hessian` (1 + K, 1 + K) are indexed by
    position in `active`; only the lower triangle is set.
    """
    for i in range(size):
        column = active[i]
        value = x[column]
        for j in range(i):
            hessian[i, j] = 0.0
        if column == 0:
            pull = prior_rate(value, prior[0], prior[1])
            gradient[i] = quiet[0] + pull - prior[0] / value
            hessian[i, i] = prior[0] / (value * value)
        else:
            q = odds_of_change(value)
            p = prior[column + 1]
            gradient[i] = quiet[column] + weight * (1.0 - p - p * q)
            hessian[i, i] = weight * p * q * (1.0 + q)
    for record in range(found):
        exponent = 0.0
        for i in range(size):
            exponent += x[active[i]] * columns[record, active[i]]
        q = odds_of_change(exponent)
        curvature = q * (1.0 + q)
        for i in range(size):
            amount = columns[record, active[i]]
            gradient[i] -= q * amount
            for j in range(i + 1):
                hessian[i, j] += curvature * amount * columns[record, active[j]]


@compiled
def newton_step(gradient: Floats, hessian: Floats, size: int, step: Floats, bend: float) -> float:
    """Solve H step = −g by Cholesky in place of H; returns the squared Newton decrement.

    `bend` is taken off the last pivot, of which `LEAST_PIVOT` stays.
    """
    for i in range(size):
        diagonal = hessian[i, i]
        for j in range(i + 1):
            total = hessian[i, j]
            for k in range(j):
                total -= hessian[i, k] * hessian[j, k]
            if i == j:
                if i == size - 1:
                    total = max(total - bend, LEAST_PIVOT * total)
                hessian[i, i] = math.sqrt(max(total, 1e-15 * diagonal))
            else:
                hessian[i, j] = total / hessian[j, j]
    for i in range(size):
        total = -gradient[i]
        for k in range(i):
            total -= hessian[i, k] * step[k]
        step[i] = total / hessian[i, i]
    decrement = 0.0
    for i in range(size - 1, -1, -1):
        decrement += step[i] * step[i]
        total = step[i]
        for k in range(i + 1, size):
            total -= hessian[k, i] * step[k]
        step[i] = total / hessian[i, i]
    return decrement


@compiled
def posterior_shape(
    x: Floats, prior: Floats, columns: Floats, found: int, quiet_days: float, has_tail: bool
) -> float:
    """a = −∂²(log-posterior)/∂(ln α)² at `x`, at least 0.3 of the prior's shape A.

    Beyond the knee the prior is straight in ln α and adds nothing.
    """
    is_beyond = has_tail and x[0] * prior[1] > prior[0] + TAIL
    shape: float = x[0] * (quiet_days if is_beyond else quiet_days + prior[1])
    for record in range(found):
        exponent = 0.0
        for column in range(x.size):
            exponent += x[column] * columns[record, column]
        part = x[0] * columns[record, 0]
        q = odds_of_change(exponent)
        shape -= q * part * (1.0 - part * (1.0 + q))
    floor: float = 0.3 * prior[0]
    return max(shape, floor)


@compiled
def take_step(
    x: Floats,
    step: Floats,
    decrement: float,
    gradient: Floats,
    active: Integers,
    size: int,
    old: Floats,
) -> float:
    """Move `x` by Newton's `step`, each value within a factor five; returns the slope along it.

    Leaves the point before in `old` and the step taken in `step`.
    """
    slope = 0.0
    share = 1.0
    for i in range(size):
        old[i] = x[active[i]]
        x[active[i]] = stretched(old[i], step[i])
        slope += gradient[i] * (x[active[i]] - old[i])
        share = min(share, scale_within(old[i], step[i]))
    if slope > -0.1 * min(decrement, 1.0):
        # Bending the step has turned it uphill: take Newton's own direction, shortened.
        slope = -share * decrement
        for i in range(size):
            x[active[i]] = old[i] + share * step[i]
    for i in range(size):
        step[i] = x[active[i]] - old[i]
    return slope


@compiled
def posterior_mode(
    prior: Floats,
    weight: float,
    columns: Floats,
    found: int,
    quiet: Floats,
    active: Integers,
    scratch: Floats,
    x: Floats,
) -> int:
    """Minimise f from a cold start; leaves the mode in `x` (1 + K,), returns the iterations.

    `active` (1 + K,) and `scratch` (≥ 4 + K rows of 1 + K) are working space.
    """
    size = active_sources(prior, columns, found, quiet, active)
    gradient, step, old, hessian = scratch[0], scratch[1], scratch[2], scratch[3:]
    exposure = prior[1] + quiet[0]
    for record in range(found):
        exposure += columns[record, 0]
    x[0] = (prior[0] + (found if size == 1 else 0.5 * found)) / exposure
    for column in range(1, x.size):
        x[column] = -math.log1p(-prior[column + 1])
    if found == 0 and size == 1:
        return 0
    step[:] = 0.0
    old_slope = -math.inf
    for iteration in range(MAX_ITERATIONS):
        posterior_slope(x, prior, weight, columns, found, quiet, active, size, gradient, hessian)
        slope = 0.0
        for i in range(size):
            slope += gradient[i] * step[i]
        if slope > -0.9 * old_slope:
            # Overshot: the slope along the last step is now steeply upwards. Go half of it.
            old_slope *= 0.5
            for i in range(size):
                step[i] *= 0.5
                x[active[i]] = old[i] + step[i]
            continue
        is_beyond = x[0] * prior[1] > prior[0] + TAIL
        bend = (prior[0] + TAIL) / (x[0] * x[0]) if is_beyond else 0.0
        decrement = newton_step(gradient, hessian, size, step, bend)
        old_slope = take_step(x, step, decrement, gradient, active, size, old)
        if not decrement > DECREMENT_TOLERANCE:
            return iteration + 1
    return MAX_ITERATIONS


@compiled
def load_prior(prior: Floats, shape: Row, rate: Row, precision: Row, host: int) -> None:
    """Copy (A, B, p_1 … p_K) of a host to `prior` (2 + K,), precisions held inside (0, 1)."""
    prior[0] = shape[host]
    prior[1] = rate[host]
    for source in range(precision.shape[1]):
        prior[source + 2] = min(max(precision[host, source], LOWEST_PRECISION), HIGHEST_PRECISION)


@compiled
def fit_map_rings(
    pages: Integers,
    host_index: Row,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    host_shape: Row,
    host_rate: Row,
    host_precision: Row,
    weight: float,
    unsignalled_change_rate: Row,
    signal_evidence: Row,
    posterior_width: Row,
) -> None:
    """Posterior mode and shape of the pages named in `pages`, written to their rows in place."""
    depth = intervals.shape[1]
    size = signals.shape[2] + 1
    columns, quiet, x = np.empty((depth, size)), np.empty(size), np.empty(size)
    active, scratch, prior = (
        np.empty(size, np.int64),
        np.empty((size + 3, size)),
        np.empty(size + 1),
    )
    for index in range(pages.size):
        page = pages[index]
        records = min(count[page], depth)
        found = gather_columns(
            intervals[page], signals[page], changed[page], records, columns, quiet
        )
        load_prior(prior, host_shape, host_rate, host_precision, host_index[page])
        posterior_mode(prior, weight, columns, found, quiet, active, scratch, x)
        unsignalled_change_rate[page] = x[0]
        for source in range(size - 1):
            signal_evidence[page, source] = x[source + 1]
        posterior_width[page] = posterior_shape(x, prior, columns, found, quiet[0], True)


@compiled
def fit_map_ragged(
    longest: int,
    host_index: Row,
    intervals: Floats,
    signals: Floats,
    changed: Row,
    offsets: Integers,
    host_shape: Row,
    host_rate: Row,
    host_precision: Row,
    weight: float,
    unsignalled_change_rate: Floats,
    signal_evidence: Floats,
    posterior_width: Floats,
) -> None:
    """Posterior mode and shape of every page of a ragged layout."""
    size = signals.shape[1] + 1
    columns, quiet, x = np.empty((longest, size)), np.empty(size), np.empty(size)
    active, scratch, prior = (
        np.empty(size, np.int64),
        np.empty((size + 3, size)),
        np.empty(size + 1),
    )
    for page in range(offsets.size - 1):
        begin, end = offsets[page], offsets[page + 1]
        found = gather_columns(
            intervals[begin:end],
            signals[begin:end],
            changed[begin:end],
            end - begin,
            columns,
            quiet,
        )
        load_prior(prior, host_shape, host_rate, host_precision, host_index[page])
        posterior_mode(prior, weight, columns, found, quiet, active, scratch, x)
        unsignalled_change_rate[page] = x[0]
        for source in range(size - 1):
            signal_evidence[page, source] = x[source + 1]
        posterior_width[page] = posterior_shape(x, prior, columns, found, quiet[0], True)
