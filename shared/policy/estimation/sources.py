"""Several signal sources as one: the jump κ̄ that stands for a signal of whatever source.

The crawl value knows one evidence κ. Where K sources send at rates γ_k, of evidence κ_k and
precision p_k = 1 − e^{−κ_k}, a usual signal is true with the mean precision, so that

    κ̄ = −ln(1 − Σ γ_k p_k / Σ γ_k)

while the state keeps the exact Σ κ_k n_k. Averaging precisions loses at most 0.7 % of a page's
objective, averaging κ itself 6 %.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats


@compiled
def mean_evidence(rates: Any, evidence: Any) -> float:
    """κ̄ of one page or host: `rates` γ_k (or counts) and `evidence` κ_k have an element a source.

    0 where no source sends.
    """
    total, true_signals, false_signals = 0.0, 0.0, 0.0
    for source in range(len(rates)):
        # Compiled, `float` leaves a float32 as it is.
        rate, kappa = np.float64(rates[source]), np.float64(evidence[source])
        if rate > 0.0:
            total += rate
            true_signals -= rate * math.expm1(-kappa)
            false_signals += rate * math.exp(-kappa)
    if not total > 0.0:
        return 0.0
    if false_signals < 0.5 * total:
        return -math.log(false_signals / total) if false_signals > 0.0 else math.inf
    # Where nearly all signals are false, the sum of precisions keeps the digits.
    return -math.log1p(-true_signals / total)


@compiled
def _fill(rates: Floats, evidence: Floats, out: Floats) -> None:
    for row in range(out.size):
        out[row] = mean_evidence(rates[row], evidence[row])


def effective_signal_evidence(
    source_signal_rates: NDArray[Any], source_signal_evidence: NDArray[Any]
) -> Floats:
    """`mean_evidence` of arrays of shape (…, K), which broadcast; the result is (…,)."""
    rates, evidence = np.broadcast_arrays(
        np.asarray(source_signal_rates, dtype=np.float64),
        np.asarray(source_signal_evidence, dtype=np.float64),
    )
    shape, sources = rates.shape[:-1], rates.shape[-1]
    out = np.empty(math.prod(shape))
    _fill(
        np.ascontiguousarray(rates).reshape(-1, sources),
        np.ascontiguousarray(evidence).reshape(-1, sources),
        out,
    )
    return out.reshape(shape)


def usual_mix(signals: Floats) -> Floats:
    """Counts of signals by source, (hosts, K); where there are none one of the first source."""
    silent = ~(signals.sum(axis=1, keepdims=True) > 0)
    return np.where(silent, np.eye(1, signals.shape[1]), signals)
