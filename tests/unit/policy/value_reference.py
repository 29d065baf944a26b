"""The crawl value straight from the textbook sums, in 60-digit arithmetic or more.

Independent of the package: nothing here is imported from it, and no formula is rearranged for
stability.  Precision grows with the size of the arguments, so that cancellation is harmless.
"""

import mpmath as mp

DIGITS = 60


def regularised_gamma(i, x):
    """P(i+1, x) = 1 − e^{−x} Σ_{j≤i} x^j/j!, or its complementary series where that is shorter."""
    if x <= 0:
        return mp.mpf(0)
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
    while term > total * mp.mpf(10) ** (-mp.mp.dps):
        k += 1
        term *= x / k
        total += term
    return total


def value_and_psi(alpha, kappa, gamma, elapsed, signals, *, digits=DIGITS):
    """(V/μ, ψ) for α > 0, γ > 0, 0 < κ < ∞ as [N] lemma 4 states them, N = ⌊ι/β⌋."""
    scale = max(float(alpha * elapsed + kappa * signals), 1.0)
    with mp.workdps(digits + 40 + int(min(scale, 60.0))):
        alpha, kappa, gamma, elapsed = (mp.mpf(float(x)) for x in (alpha, kappa, gamma, elapsed))
        total_rate = alpha + gamma
        beta = kappa / alpha
        noise = gamma * mp.exp(-kappa)
        periods = signals + int(mp.floor(elapsed / beta))
        psi = mp.mpf(0)
        fresh_time = mp.mpf(0)
        for i in range(periods + 1):
            x = elapsed + (signals - i) * beta
            psi += regularised_gamma(i, gamma * x) / gamma
            fresh_time += noise**i / total_rate ** (i + 1) * regularised_gamma(i, total_rate * x)
        staleness = alpha * elapsed + kappa * signals
        return fresh_time - mp.exp(-staleness) * psi, psi


def unsignalled_value(rate, elapsed):
    """(1 − (1+u)e^{−u})/Δ, u = Δt."""
    with mp.workdps(DIGITS + 40):
        u = mp.mpf(float(rate)) * mp.mpf(float(elapsed))
        return (1 - (1 + u) * mp.exp(-u)) / mp.mpf(float(rate))


def staircase_value(kappa, gamma, signals):
    """(1/γ)[(1−qⁿ)/(1−q) − n qⁿ], q = e^{−κ}: every change is signalled."""
    with mp.workdps(DIGITS + 60):
        q = mp.exp(-mp.mpf(float(kappa)))
        return ((1 - q**signals) / (1 - q) - signals * q**signals) / mp.mpf(float(gamma))
