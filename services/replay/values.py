"""The crawl values that a replay can schedule by, of one page: each the policy library's own.

A policy of this family always crawls the page of the greatest value; the members differ in the
value alone.
"""

import math

from shared.contracts.objectives import FRESHNESS
from shared.contracts.objectives import HARMONIC as HARMONIC_OBJECTIVE
from shared.policy.approximations import TRUSTED_PRECISION, TRUSTED_RECALL, leading_terms
from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import change_rate_scalar, value_and_psi
from shared.policy.objectives import objective_value_scalar

EXACT = 0
"""GREEDY-NCIS, and production: the exact value with noisy signals."""
NO_SIGNALS = 1
"""GREEDY: knows the change rate, does not look at signals."""
TRUSTING = 2
"""GREEDY-CIS: takes every signal for true."""
SELECTIVE = 3
"""GREEDY-CIS+: trusts pages of high precision and recall, does not look at others' signals."""
FIRST_TERMS = 4
"""G-NCIS-APPROX-j."""
HARMONIC = 5
"""The harmonic objective, in its Ein form."""


@compiled
def _trusting(alpha: float, kappa: float, gamma: float, elapsed: float, signals: float) -> float:
    """As if no signal were false, so that γ becomes λΔ (`approximations.greedy_cis_value`)."""
    if not (gamma > 0.0 and kappa > 0.0):
        return value_and_psi(alpha, 0.0, 0.0, elapsed, 0.0)[0]
    return value_and_psi(alpha, math.inf, -gamma * math.expm1(-kappa), elapsed, signals)[0]


@compiled
def unit_value(
    kind: int,
    terms: float,
    alpha: float,
    kappa: float,
    gamma: float,
    elapsed: float,
    signals: float,
) -> float:
    """V/μ of a page, `elapsed` days and `signals` after its last crawl, under value `kind`.

    `terms` is the j of `FIRST_TERMS`. Rises with `elapsed` and with `signals`, which need not be
    whole under `EXACT` and `HARMONIC`: those of some sources count for more than others'.
    """
    if kind == EXACT:
        return objective_value_scalar(FRESHNESS, alpha, kappa, gamma, elapsed, signals)
    if kind == TRUSTING:
        return _trusting(alpha, kappa, gamma, elapsed, signals)
    if kind == FIRST_TERMS:
        return leading_terms(alpha, kappa, gamma, elapsed, signals, terms)
    if kind == HARMONIC:
        return objective_value_scalar(HARMONIC_OBJECTIVE, alpha, kappa, gamma, elapsed, signals)
    change_rate = change_rate_scalar(alpha, kappa, gamma)
    if kind == SELECTIVE and gamma > 0.0 and change_rate > 0.0:
        precision = -math.expm1(-kappa)
        if precision > TRUSTED_PRECISION and gamma * precision > TRUSTED_RECALL * change_rate:
            return _trusting(alpha, kappa, gamma, elapsed, signals)
    return value_and_psi(change_rate, 0.0, 0.0, elapsed, 0.0)[0]
