# ruff: noqa: PLR0911  (one case of the model a return)
"""The crawl value of one page in every case; the public scalar kernels.

A page is (α, κ, γ): the rate of changes without a signal (per day), the evidence one signal adds
to the staleness exponent, and the rate of signals (per day).  Its state is the time t since its
last crawl (days) and either the number of signals since then or, where signals of several sources
weigh differently, their summed evidence e.  The staleness exponent is s = αt + e.
"""

import math

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.kernels.noisy import first_term, noisy_value_and_psi, saturated_terms
from shared.policy.kernels.special import unit_value

_SAME_EVIDENCE = 1e-13
"""Relative distance below which a sum of evidence counts as a whole number of signals."""

LONGEST_DAYS = 1e250
"""A signal worth more days than this belongs to a page on which every change is signalled."""


@compiled
def change_rate_scalar(alpha: float, kappa: float, gamma: float) -> float:
    """Δ = α + γ(1 − e^{−κ}), changes per day."""
    if not gamma > 0.0:
        return alpha
    return alpha - gamma * math.expm1(-kappa)


@compiled
def split_evidence(kappa: float, evidence: float) -> tuple[float, float]:
    """Evidence as (whole signals n, what is left r), e = nκ + r with 0 ≤ r < κ."""
    if not (evidence > 0.0 and kappa > 0.0):
        return 0.0, 0.0
    if kappa == math.inf:
        if evidence == math.inf:
            return 1.0, 0.0
        return 0.0, evidence
    ratio = evidence / kappa
    if ratio >= 1e15:
        return ratio, 0.0
    nearest = np.floor(ratio + 0.5)
    if abs(ratio - nearest) <= _SAME_EVIDENCE * ratio:
        return nearest, 0.0
    whole = np.floor(ratio)
    return whole, max(evidence - whole * kappa, 0.0)


@compiled
def fully_signalled(kappa: float, gamma: float, signals: float, part: float) -> tuple[float, float]:
    """(V/μ, ψ) where α = 0 and γ > 0: a staircase in the number of signals."""
    terms = signals
    if part > 0.0:
        terms += 1.0
    if terms == 0.0:
        return 0.0, 0.0
    psi = terms / gamma
    if kappa == math.inf:
        if signals > 0.0:
            return 1.0 / gamma, 1.0 / gamma
        return -math.expm1(-part) / gamma, psi
    return saturated_terms(kappa * signals + part, kappa, 0.0, terms) / gamma, psi


@compiled
def _value_and_psi(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: float, part: float
) -> tuple[float, float]:
    """(V/μ, ψ) at ``elapsed`` days, whole ``signals`` and ``part`` of a signal's evidence."""
    elapsed = max(elapsed, 0.0)
    if not (gamma > 0.0 and kappa > 0.0):
        if not alpha > 0.0:
            return 0.0, elapsed
        staleness = alpha * elapsed + part
        if signals > 0.0:
            staleness += kappa * signals
        return unit_value(staleness) / alpha, staleness / alpha
    noiseless = kappa == math.inf
    if not alpha > 0.0 or (not noiseless and kappa > LONGEST_DAYS * alpha):
        return fully_signalled(kappa, gamma, signals, part)
    if part > 0.0:
        elapsed += part / alpha
    if elapsed == math.inf:
        return 1.0 / change_rate_scalar(alpha, kappa, gamma), math.inf
    if noiseless:
        if signals > 0.0:
            return 1.0 / (alpha + gamma), 1.0 / gamma
        return first_term(alpha, gamma, elapsed)
    return noisy_value_and_psi(alpha, kappa, gamma, elapsed, signals)


@compiled
def value_and_psi(
    alpha: float, kappa: float, gamma: float, elapsed_days: float, signals: float
) -> tuple[float, float]:
    """(V/μ in days, ψ in days) after ``elapsed_days`` and a whole number of ``signals``.

    ψ is the expected time between crawls of the policy that crawls in this state; 1/ψ is its crawl
    rate.  [N, theorem 1 and lemma 4; B for γ = 0]
    """
    return _value_and_psi(alpha, kappa, gamma, elapsed_days, float(signals), 0.0)


@compiled
def value_at_evidence(
    alpha: float, kappa: float, gamma: float, elapsed_days: float, evidence: float
) -> tuple[float, float]:
    """(V/μ, ψ) as :func:`value_and_psi`, for signals whose evidence sums to ``evidence``.

    The state counts as ι = t + e/α; evidence of whole signals gives exactly the value of their
    number.  Pass e^−s multipliers of the elapsed time as a scaled ``elapsed_days``.
    """
    signals, part = split_evidence(kappa, evidence)
    if not (gamma > 0.0 and kappa > 0.0) and evidence > 0.0:
        signals, part = 0.0, evidence
    return _value_and_psi(alpha, kappa, gamma, elapsed_days, signals, part)


@compiled
def crawl_value_scalar(
    importance: float,
    alpha: float,
    kappa: float,
    gamma: float,
    elapsed_days: float,
    evidence: float,
) -> float:
    """Crawl value V of a page with summed ``evidence`` e = Σκ_k n_k since its last crawl."""
    if not importance > 0.0:
        return 0.0
    value, _ = value_at_evidence(alpha, kappa, gamma, elapsed_days, evidence)
    return importance * value


@compiled
def staleness_scalar(alpha: float, elapsed_days: float, evidence: float) -> float:
    """The staleness exponent s = αt + e; P(fresh) = e^{−s} [N, equation 1]."""
    return alpha * max(elapsed_days, 0.0) + max(evidence, 0.0)
