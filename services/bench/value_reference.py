"""The crawl value straight from the textbook sums, in 60-digit arithmetic or more.

Independent of the policy library: nothing is imported from it, and no formula is rearranged for
stability.  Precision grows with the size of the arguments, so that cancellation is harmless.  The
tests and the benchmark compare with it; it needs mpmath, a development dependency.
"""

import math
from typing import Any

import mpmath as mp

DIGITS = 60
Number = Any
"""A number of mpmath."""


def regularised_gamma(i: int, x: Number) -> Number:
    """P(i+1, x) = 1 − e^{−x} Σ_{j≤i} x^j/j!, or its complementary series where that is shorter.

    Far beyond i it differs from 1 by less than e^−150.
    """
    if x <= 0:
        return mp.mpf(0)
    if x > i + 60 * math.sqrt(i + 1) + 400:
        return mp.mpf(1)
    if x > i + 1:
        term = mp.exp(-x)
        total = term
        for j in range(1, i + 1):
            term *= x / j
            total += term
        return 1 - total
    term = mp.exp((i + 1) * mp.log(x) - x - mp.loggamma(i + 2))
    total = term
    k = i + 1
    while term > total * mp.eps:
        k += 1
        term *= x / k
        total += term
    return total


def value_and_psi(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: int
) -> tuple[Number, Number]:
    """(V/μ, ψ) for α > 0, γ > 0, 0 < κ < ∞ as [N] lemma 4 states them, N = ⌊ι/β⌋."""
    extra = int(min(alpha * elapsed + kappa * signals, 60.0))
    with mp.workdps(DIGITS + 40 + extra):
        a, k, g, t = (mp.mpf(float(x)) for x in (alpha, kappa, gamma, elapsed))
        total_rate = a + g
        beta = k / a
        noise = g * mp.exp(-k)
        psi = mp.mpf(0)
        fresh_time = mp.mpf(0)
        for i in range(signals + int(mp.floor(t / beta)) + 1):
            x = t + (signals - i) * beta
            psi += regularised_gamma(i, g * x) / g
            fresh_time += noise**i / total_rate ** (i + 1) * regularised_gamma(i, total_rate * x)
        return fresh_time - mp.exp(-(a * t + k * signals)) * psi, psi


def staircase_value(kappa: float, gamma: float, signals: int) -> Number:
    """(1/γ)[(1−qⁿ)/(1−q) − n qⁿ], q = e^{−κ}: every change is signalled."""
    with mp.workdps(DIGITS + 60):
        q = mp.exp(-mp.mpf(float(kappa)))
        return ((1 - q**signals) / (1 - q) - signals * q**signals) / mp.mpf(float(gamma))
