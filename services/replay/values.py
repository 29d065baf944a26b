"""The crawl values that a replay can schedule by, of one page: each the policy library's own.

A policy of this family always crawls the page of the greatest value; the members differ in the
value alone.
"""

import math

from shared.policy.approximations import leading_terms
from shared.policy.compiled import compiled
from shared.policy.harmonic import harmonic_value_scalar
from shared.policy.kernels.crawl_value import (
    change_rate_scalar,
    value_and_psi,
    value_at_evidence,
)

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

TRUSTED_PRECISION, TRUSTED_RECALL = 0.7, 0.6
"""[N] section 6.7: above both, GREEDY-CIS+ trusts a page's signals."""

SAME_SIGNALS = 1e-9
"""Sums of weights that are so near to a whole number are it."""


@compiled
def _trusting(alpha: float, kappa: float, gamma: float, elapsed: float, signals: float) -> float:
    """As if no signal were false, so that γ becomes λΔ (`approximations.greedy_cis_value`)."""
    if not (gamma > 0.0 and kappa > 0.0):
        return value_and_psi(alpha, 0.0, 0.0, elapsed, 0.0)[0]
    return value_and_psi(alpha, math.inf, -gamma * math.expm1(-kappa), elapsed, signals)[0]


@compiled
def _exact(alpha: float, kappa: float, gamma: float, elapsed: float, signals: float) -> float:
    if signals == math.floor(signals):
        return value_and_psi(alpha, kappa, gamma, elapsed, signals)[0]
    return value_at_evidence(alpha, kappa, gamma, elapsed, kappa * signals)[0]


@compiled
def _harmonic(alpha: float, kappa: float, gamma: float, elapsed: float, signals: float) -> float:
    """Part of a signal counts as the time in which the page's age grows as much."""
    whole = math.floor(signals + SAME_SIGNALS)
    part = signals - whole
    if part > 0.0 and alpha > 0.0:
        elapsed -= part * math.expm1(-kappa) / alpha
    return harmonic_value_scalar(alpha, kappa, gamma, elapsed, whole, False)


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
        return _exact(alpha, kappa, gamma, elapsed, signals)
    if kind == TRUSTING:
        return _trusting(alpha, kappa, gamma, elapsed, signals)
    if kind == FIRST_TERMS:
        return leading_terms(alpha, kappa, gamma, elapsed, signals, terms)
    if kind == HARMONIC:
        return _harmonic(alpha, kappa, gamma, elapsed, signals)
    change_rate = change_rate_scalar(alpha, kappa, gamma)
    if kind == SELECTIVE and gamma > 0.0 and change_rate > 0.0:
        precision = -math.expm1(-kappa)
        if precision > TRUSTED_PRECISION and gamma * precision > TRUSTED_RECALL * change_rate:
            return _trusting(alpha, kappa, gamma, elapsed, signals)
    return value_and_psi(change_rate, 0.0, 0.0, elapsed, 0.0)[0]
