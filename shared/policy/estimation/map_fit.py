"""The production fit of a page: the mode of its posterior under its host's priors.

Maximises, over α and one κ_k per signal source (design: production estimator, point 3),

    A ln α − B α + Σ_k [S p_k ln(1 − e^{−κ_k}) − S (1 − p_k) κ_k]
      + Σ_j [z_j ln(1 − e^{−s_j}) − (1 − z_j) s_j],   s_j = α t_j + Σ_k κ_k n_jk

with the host's (A, B, p_k) and prior weight S ≤ 1, and −Bα only as far as the *knee*
α = (A + c)/B, where the prior's pull on ln α, A − Bα, has come to −c. Beyond, it stays −c: there
the prior is α^−c, and with c = `TAIL` two changes outweigh it. So a page's own crawls soon tell
any rate, however far above its host's; below the knee the prior is the Gamma, exactly.

Without signals the posterior is concave in ln α, and so has one mode. With signals there may be two
beyond the knee (few changes that all were signalled, or many); Newton's method, with steps kept
within a factor five, begins where the Gamma prior would, and finds the one that lies downhill from
there. So a fit depends on the records and the priors alone. Intervals t_j are *effective* days, the
burst multiplier M_j that held during the interval times its days (`bursts`). The posterior of α is
Gamma(a, a/α̂), a = −∂²/∂(ln α)² at the mode, which is A where nothing was observed (beyond the knee
the prior adds nothing to it); `posterior_shape` holds a.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.estimation.histories import (
    Flags,
    Integers,
    longest_history,
    ragged_histories,
)
from shared.policy.estimation.host_priors import HostPriors
from shared.policy.estimation.map_kernel import fit_map_ragged, fit_map_rings
from shared.policy.estimation.smoothed import check_rings

PRIOR_SIGNAL_WEIGHT = 1.0
"""S: signals' worth of belief in the host's precision of a source. More is harmed by spam."""


class MapColumns(NamedTuple):
    """Columns of fitted parameters, a row a page; `fit_rings_map` writes them in place."""

    unsignalled_change_rate: NDArray[Any]
    """α̂, per day, (pages,)."""
    signal_evidence: NDArray[Any]
    """κ̂ of each source, (pages, sources)."""
    posterior_shape: NDArray[Any]
    """a, (pages,)."""


def fit_rings_map(
    pages: Integers,
    host_index: Integers,
    intervals: NDArray[Any],
    signals: NDArray[Any],
    changed: Flags,
    count: NDArray[Any],
    priors: HostPriors,
    out: MapColumns,
    weight: float = PRIOR_SIGNAL_WEIGHT,
) -> None:
    """Fit the pages of index array `pages` from ring buffers and write their rows of `out`.

    `host_index` (pages,) names each page's row of `priors`; `intervals` (pages, H) effective days;
    `signals` (pages, H, K), or (pages, H) for one source; `changed` (pages, H); `count` (pages,)
    records ever seen. A page without records gets its host's prior: α = A/B, κ_k = −ln(1 − p_k),
    a = A. Nothing is copied, no other row of `out` is touched, and the interpreter's lock is
    released: disjoint `pages` may be fitted from several threads at once.

    Raises ValueError when shapes, hosts or priors do not fit.
    """
    layers = check_rings(pages, intervals, signals, changed, count)
    _check_priors(priors, host_index[pages], layers.shape[2], weight)
    if out.signal_evidence.shape != (count.size, layers.shape[2]):
        raise ValueError(
            f"out.signal_evidence is {out.signal_evidence.shape}, must be "
            f"({count.size}, {layers.shape[2]}): a row a page, a column a source"
        )
    fit_map_rings(
        pages, host_index, intervals, layers, changed, count, *priors, float(weight), *out
    )


def fit_histories_map(
    intervals: Any,
    signals: Any,
    changed: Any,
    offsets: Any,
    host_index: Integers,
    priors: HostPriors,
    weight: float = PRIOR_SIGNAL_WEIGHT,
) -> MapColumns:
    """Fit every page of ragged histories (`histories.ragged_histories` gives the layout).

    Raises ValueError on malformed histories or priors.
    """
    histories = ragged_histories(intervals, signals, changed, offsets)
    sources = histories.signals.shape[1]
    if np.shape(host_index) != (histories.pages,):
        raise ValueError(f"host_index is {np.shape(host_index)}, must be ({histories.pages},)")
    _check_priors(priors, host_index, sources, weight)
    out = MapColumns(
        np.zeros(histories.pages), np.zeros((histories.pages, sources)), np.zeros(histories.pages)
    )
    longest = longest_history(histories.offsets)
    fit_map_ragged(longest, host_index, *histories, *priors, float(weight), *out)
    return out


def _check_priors(priors: HostPriors, owners: Integers, sources: int, weight: float) -> None:
    hosts = priors.shape.size
    if priors.rate.shape != (hosts,) or priors.precision.shape != (hosts, sources):
        raise ValueError(
            f"priors of {hosts} hosts and {sources} sources need rate ({hosts},) and precision "
            f"({hosts}, {sources}); got {priors.rate.shape} and {priors.precision.shape}"
        )
    if owners.size and not (owners.min() >= 0 and owners.max() < hosts):
        raise ValueError(
            f"host_index lies in [{owners.min()}, {owners.max()}], the priors hold {hosts} hosts"
        )
    shape, rate = priors.shape[owners], priors.rate[owners]
    sound = (shape > 0) & (rate > 0) & np.isfinite(shape + rate)
    if not sound.all():
        host = int(owners[np.argmin(sound)])
        raise ValueError(
            f"host {host}: prior shape {priors.shape[host]} and rate {priors.rate[host]} must be "
            "positive and finite"
        )
    if not 0 < weight < np.inf:
        raise ValueError(f"weight of the signal prior is {weight}, must be positive")
