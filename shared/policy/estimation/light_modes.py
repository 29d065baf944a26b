"""What hosts hear of pages: fits by the Gamma prior without its tail.

The tail (`map_fit`) is for a page's own sake: its crawls soon tell any rate. Of its host's other
pages that says little, and sums over pages are at the mercy of the greatest: one page that changes
every few seconds would speak for all of them. So priors of hosts and factors of pages are learned
from the modes that the Gamma alone would have. Up to the knee both are the same.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats, Integers
from shared.policy.estimation.map_kernel import (
    MAX_ITERATIONS,
    TAIL,
    gather_columns,
    posterior_shape,
)
from shared.policy.estimation.smoothed_kernel import odds_of_change, stretched

Row = NDArray[Any]


def light_modes(
    pages: Integers,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    prior_shape: Floats,
    prior_rate: Floats,
    unsignalled_change_rate: Row,
    signal_evidence: Row,
    posterior_shape: Row,
) -> tuple[Floats, Floats]:
    """(α, a) of all pages, those of `pages` by the Gamma prior without its tail.

    Rings and fitted columns are those of `map_fit.fit_rings_map`, `signals` (pages, H, K);
    `prior_shape` and `prior_rate` (days) are A and B of each page's own prior, (pages,).
    """
    rates = np.array(unsignalled_change_rate, dtype=np.float64)
    widths = np.array(posterior_shape, dtype=np.float64)
    light_rings(
        pages,
        intervals,
        signals,
        changed,
        count,
        np.ascontiguousarray(prior_shape),
        np.ascontiguousarray(prior_rate),
        signal_evidence,
        rates,
        widths,
    )
    return rates, widths


@compiled
def light_mode(
    x: Floats, shape: float, rate: float, columns: Floats, found: int, quiet_days: float
) -> float:
    """α where the Gamma(`shape`, `rate`) prior without its tail would have the mode, κ as in `x`.

    The fixed point of (A + Σ α t/(1 − e^{−s}))/(B + T), from above; α̂ itself up to the knee.
    """
    alpha: float = x[0]
    if not alpha * rate > shape + TAIL:
        return alpha
    for _ in range(MAX_ITERATIONS):
        slope, curvature = shape / alpha - rate - quiet_days, shape / (alpha * alpha)
        for record in range(found):
            exponent = alpha * columns[record, 0]
            for column in range(1, x.size):
                exponent += x[column] * columns[record, column]
            q = odds_of_change(exponent)
            slope += q * columns[record, 0]
            curvature += q * (1.0 + q) * columns[record, 0] ** 2
        step = slope / curvature
        alpha = stretched(alpha, step)
        if abs(step) < 1e-9 * alpha:
            break
    return alpha


@compiled
def light_rings(
    pages: Integers,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    prior_shape: Row,
    prior_rate: Row,
    signal_evidence: Row,
    rates: Floats,
    widths: Floats,
) -> None:
    """What hosts hear of `pages`: α and a of each as the Gamma prior without its tail has them.

    `prior_shape` and `prior_rate` are A and B of each page's own prior; in `rates` and `widths`, α̂
    and a before, those beyond the knee are replaced.
    """
    depth, size = intervals.shape[1], signals.shape[2] + 1
    columns, quiet, x = np.empty((depth, size)), np.empty(size), np.empty(size)
    prior = np.empty(2)
    for index in range(pages.size):
        page = pages[index]
        x[0] = rates[page]
        if not x[0] * prior_rate[page] > prior_shape[page] + TAIL:
            continue
        found = gather_columns(
            intervals[page], signals[page], changed[page], min(count[page], depth), columns, quiet
        )
        for source in range(size - 1):
            x[source + 1] = signal_evidence[page, source]
        prior[0], prior[1] = prior_shape[page], prior_rate[page]
        x[0] = light_mode(x, prior[0], prior[1], columns, found, quiet[0])
        rates[page] = x[0]
        widths[page] = posterior_shape(x, prior, columns, found, quiet[0], False)
