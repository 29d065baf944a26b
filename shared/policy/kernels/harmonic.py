"""The harmonic objective of one page: penalty H_n for n unseen changes [K], as a crawl value.

The expected penalty of the state (t, n), the page's *age*, is
c = ∫₀¹ (1 − e^{−αty}(1−py)ⁿ)/y dy with p = 1 − e^{−κ}.  For any penalty that grows with the state,
V = μ(c*ψ − E∫c) over a cycle that ends at the age c*.
"""

import math

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.kernels.noisy import noisy_value_and_psi
from shared.policy.kernels.special import poisson_probability, poisson_tail

_EULER = 0.5772156649015329
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_SATURATED = 36.0

_MANY = 1e5
"""Of more signals a sum over them is found as an integral."""

_LEAST_SHARE = 1e-200
"""α counts as no less than this share of γp, which keeps p/α finite; only values of that size,
of pages without a signal since their crawl, are changed by it."""


@compiled
def ein(x: float) -> float:
    """Ein(x) = ∫₀ˣ (1−e^{−y})/y dy, the harmonic penalty expected after Poisson(x) changes."""
    if not x > 0.0:
        return 0.0
    if x < 30.0:
        # e^{-x} Σ H_k x^k/k!: positive terms
        harmonic = 1.0
        power = x
        total = x
        k = 1.0
        while power * harmonic > 1e-17 * total or k < x:
            k += 1.0
            power *= x / k
            harmonic += 1.0 / k
            total += power * harmonic
        return math.exp(-x) * total
    return math.log(x) + _EULER + math.exp(-x) / x * (1.0 - 1.0 / x + 2.0 / (x * x))


@compiled
def unit_harmonic(u: float) -> float:
    """u − (1 − e^{−u}): the harmonic crawl value without signals, per unit of μ/Δ."""
    if u < 0.4:
        parts = 0.5
        coefficient = 1.0 / 6.0
        power = -u
        for k in range(4, 18):
            parts += coefficient * power
            coefficient /= k
            power *= -u
        return u * u * parts
    return u + math.expm1(-u)


@compiled
def unit_harmonic_inverse(y: float) -> float:
    """The u ≥ 0 with u − (1 − e^{−u}) = y."""
    if not y > 0.0:
        return 0.0
    root = math.sqrt(2.0 * y)
    u = root * (1.0 + root / 6.0) if y < 1.0 else y + 1.0
    for _ in range(20):
        step = (unit_harmonic(u) - y) / -math.expm1(-u)
        u -= step
        if abs(step) < 1e-9 * u:
            break
    return u


@compiled
def harmonic_age(alpha: float, precision: float, elapsed: float, signals: float) -> float:
    """c(t, n): the expected harmonic penalty of a page in this state."""
    if not signals > 0.0:
        return ein(alpha * elapsed)
    scale = alpha * elapsed + precision * signals
    if not scale > 0.0:
        return 0.0
    total = 0.0
    left = 0.0
    for edge in (2.0, 6.0, 14.0, _SATURATED):
        right = min(edge / scale, 1.0)
        half = 0.5 * (right - left)
        for node in range(_NODES.size):
            y = left + half * (1.0 + _NODES[node])
            exponent = -alpha * elapsed * y + signals * math.log1p(-precision * y)
            total += half * _WEIGHTS[node] * -math.expm1(exponent) / y
        left = right
        if right >= 1.0:
            return total
    return total - math.log(left)


@compiled
def _age_slope(alpha: float, precision: float, elapsed: float, signals: float) -> float:
    """∂c/∂t = α∫₀¹ e^{−αty}(1−py)ⁿ dy."""
    scale = alpha * elapsed + precision * signals
    total = 0.0
    left = 0.0
    for edge in (2.0, 6.0, 14.0, _SATURATED):
        right = min(edge / scale, 1.0) if scale > 0.0 else 1.0
        half = 0.5 * (right - left)
        for node in range(_NODES.size):
            y = left + half * (1.0 + _NODES[node])
            exponent = -alpha * elapsed * y + signals * math.log1p(-precision * y)
            total += half * _WEIGHTS[node] * math.exp(exponent)
        left = right
        if right >= 1.0:
            break
    return alpha * total


@compiled
def _time_at_age(alpha: float, precision: float, signals: float, age: float, upper: float) -> float:
    """The t ≤ ``upper`` with c(t, signals) = ``age``; 0 if the signals alone exceed it."""
    if harmonic_age(alpha, precision, 0.0, signals) >= age:
        return 0.0
    low = 0.0
    high = upper
    t = upper
    for _ in range(60):
        excess = harmonic_age(alpha, precision, t, signals) - age
        if excess > 0.0:
            high = t
        else:
            low = t
        step = excess / _age_slope(alpha, precision, t, signals)
        following = t - step
        if abs(step) <= 1e-12 * t:
            break
        if not low <= following <= high:
            following = 0.5 * (low + high)
        t = following
    return t


@compiled
def exact_value_and_psi(
    alpha: float, precision: float, gamma: float, elapsed: float, signals: float
) -> tuple[float, float]:
    """(V/μ, ψ) by quadrature for α > 0, γ > 0: crawls once the age c(t, n) is what it is here.

    With i signals the age is reached after τ_i days: ψ = Σ P(i+1, γτ_i)/γ and
    V/μ = Σ ∫₀^{τ_i} (c* − c(u, i)) e^{−γu}(γu)^i/i! du.
    """
    age = harmonic_age(alpha, precision, elapsed, signals)
    upper = elapsed
    if signals > 0.0:
        upper = 1.0 / alpha
        while ein(alpha * upper) < age:
            upper *= 2.0
    value = 0.0
    psi = 0.0
    i = 0.0
    while True:
        reach = _time_at_age(alpha, precision, i, age, upper)
        tail = poisson_tail(i, gamma * reach)
        if not reach > 0.0 or tail <= 1e-17 * psi * gamma:
            break
        psi += tail / gamma
        width = 9.0 * math.sqrt(i + 1.0)
        left = max(i - width - 10.0, 0.0) / gamma
        last = min(reach, (i + width + 40.0) / gamma)
        for panel in range(4):
            start = left + (last - left) * panel / 4.0
            half = (last - left) / 8.0
            for node in range(_NODES.size):
                u = start + half * (1.0 + _NODES[node])
                missing = age - harmonic_age(alpha, precision, u, i)
                value += half * _WEIGHTS[node] * missing * poisson_probability(i, gamma * u)
        upper = reach
        i += 1.0
    return value, psi


@compiled
def staircase_value(kappa: float, gamma: float, signals: float) -> float:
    """V/μ = (1/γ)Σ_{k≤n} (1 − e^{−kκ}) where every change is signalled (α = 0)."""
    if kappa == math.inf:
        return signals / gamma
    if signals * kappa < 0.1 and signals < _MANY:
        total = 0.0
        for k in range(1, int(signals) + 1):
            total -= math.expm1(-k * kappa)
        return total / gamma
    if signals * kappa < 0.1:
        # Euler and Maclaurin: what comes next is κ³/720 of nothing.
        smooth = unit_harmonic(signals * kappa) / kappa
        return (smooth - (0.5 - kappa / 12.0) * math.expm1(-signals * kappa)) / gamma
    q = math.exp(-kappa)
    return (signals - q * math.expm1(-signals * kappa) / math.expm1(-kappa)) / gamma


@compiled
def ein_value_and_psi(
    alpha: float, precision: float, gamma: float, elapsed: float, signals: float
) -> tuple[float, float]:
    """(V/μ, ψ) of the Ein form for α > 0, γ > 0: age Ein(αt + pn), a signal counts as p/α days.

    Ein(a) = ∫₀¹ (1 − e^{−ay})/y dy mixes penalties of the freshness objective, for pages with yα
    and yp in place of α and κ.  All of them wait equally long for a signal's worth, so they share
    ψ, and V/μ = ∫₀¹ V_y/y dy over their crawl values: as exact and as quick for any α, however
    many days p/α there are to a signal.
    """
    alpha = max(alpha, _LEAST_SHARE * gamma * precision)
    psi = noisy_value_and_psi(alpha, precision, gamma, elapsed, signals)[1]
    age = alpha * elapsed + precision * signals
    if not age > 0.0:
        return 0.0, psi
    total = 0.0
    left = 0.0
    for edge in (8.0, _SATURATED):
        right = min(edge / age, 1.0)
        half = 0.5 * (right - left)
        for node in range(_NODES.size):
            y = left + half * (1.0 + _NODES[node])
            part = noisy_value_and_psi(y * alpha, y * precision, gamma, elapsed, signals)[0]
            total += half * _WEIGHTS[node] * part / y
        left = right
    while left < 1.0:
        # V_y = 1/Δ_y here, which has all its poles far from a panel of this ratio
        right = min(8.0 * left, 1.0)
        half = 0.5 * (right - left)
        for node in range(_NODES.size):
            y = left + half * (1.0 + _NODES[node])
            change_rate = y * alpha - gamma * math.expm1(-y * precision)
            total += half * _WEIGHTS[node] / (y * change_rate)
        left = right
    return total, psi
