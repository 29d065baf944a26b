"""The exact crawl value of a page with noisy signals [N, theorem 1 and lemma 4].

A page with α > 0, 0 < κ < ∞ and γ > 0 in the state (t days, n signals).  With β = κ/α, G = γβ,
c = α+γ, x_i = t+(n−i)β and N the number of whole β in t+nβ,

    ψ = Σ_{i≤N} P(i+1, γx_i)/γ,        V/μ = Σ_{i≤N} e^{−iκ} D_i,
    D_i = (γ/c)^i P(i+1, c x_i)/c − e^{−αx_i} P(i+1, γx_i)/γ.

The differences D_i are never formed as written: they lose every digit where the arguments are
small.  Two forms without cancellation share the work:

- **sum** (few terms between): a closed form for the leading terms, whose P is 1 to the last digit,
  then positive series or a forward recurrence for the others, until nothing is left of P;
- **spectrum** (many terms): ψ has the Laplace transform 1/(z(z+γ−γe^{−zβ})).  Its double pole at 0
  is the linear tail of ψ; each pair of complex poles ζ_k/β, with ζ + G(1−e^{−ζ}) = 0, adds a
  decaying wave.  A handful of poles, often none, is exact to rounding.
"""

import math

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.kernels.special import (
    MOST_COUNTED,
    poisson_probability,
    poisson_tail,
    poisson_tail_of_many,
    unit_value,
)

_STALE = 40.0
"""Above this staleness exponent V equals μ/Δ to the last digit."""

_NEGLIGIBLE = 40.0
"""Waves of the spectrum below e^−40 are left out."""

_RECURRENCE_BELOW = 32.0
"""From this term on the positive series is shorter than the recurrence that starts at term 0."""

_RECURRENCE_ABOVE = 2.0
"""Up to this cx the series is short, and the recurrence begins to lose digits (as 1/cx)."""

_MANY = 1e5
"""From this term on it counts for so little that the normal distribution is near enough."""

_FEW = 8.0
"""Waves that are no more than this are not dear, whatever the sum is."""

_NEXT_TO_NOTHING = 1e-18
"""Share of a sum at which its falling terms have come to an end."""

_RECIPROCALS = np.append(0.0, 1.0 / np.arange(1.0, 160.0))
"""1/k: a division would double the time of a step of the series."""


@compiled
def saturated_terms(staleness: float, step: float, offset: float, terms: float) -> float:
    """Σ_{i<M} (e^{−iq−ℓ} − e^{−s}) for q = step, ℓ = offset, M = terms; needs (M−1)q + ℓ ≤ s.

    A closed form of positive parts: the arithmetic mean of the exponents, and what the convexity
    of the exponential adds to it.
    """
    if staleness > 0.5:
        geometric = math.exp(-offset) * math.expm1(-terms * step) / math.expm1(-step)
        return geometric - terms * math.exp(-staleness)
    mean = staleness - offset - 0.5 * (terms - 1.0) * step
    half = 0.25 * step * step
    wide = half * terms * terms
    # sinh(y)/y - 1 as a series in y², at y = Mq/2 and at y = q/2
    outer = (
        wide
        / 6.0
        * (
            1.0
            + wide
            / 20.0
            * (
                1.0
                + wide / 42.0 * (1.0 + wide / 72.0 * (1.0 + wide / 110.0 * (1.0 + wide / 156.0)))
            )
        )
    )
    inner = (
        half
        / 6.0
        * (
            1.0
            + half
            / 20.0
            * (
                1.0
                + half / 42.0 * (1.0 + half / 72.0 * (1.0 + half / 110.0 * (1.0 + half / 156.0)))
            )
        )
    )
    convexity = (outer - inner) / (1.0 + inner)
    return terms * math.exp(-staleness) * (math.expm1(mean) + math.exp(mean) * convexity)


@compiled
def first_term(alpha: float, gamma: float, x: float) -> tuple[float, float]:
    """(D_0(x), P(1, γx)/γ): all of V/μ and ψ before the first whole β has passed."""
    c = alpha + gamma
    reach = -math.expm1(-gamma * x) / gamma
    cx = c * x
    if cx > 0.5:
        stale = -math.expm1(-alpha * x)
        if alpha < gamma:
            return (stale + (alpha / c) * math.expm1(-cx)) / gamma, reach
        return -math.expm1(-cx) / c - math.exp(-alpha * x) * reach, reach
    # e^{-cx} Σ_m x^{m+1} (c^m - γ^m)/(m+1)!
    ax = alpha * x
    gx = gamma * x
    k = 2
    difference = 0.5 * ax
    power = 0.5 * gx
    total = difference
    while difference > 1e-17 * total:
        k += 1
        difference = (cx * difference + ax * power) * _RECIPROCALS[k]
        power = gx * power * _RECIPROCALS[k]
        total += difference
    return x * math.exp(-cx) * total, reach


@compiled
def _recurrence_term(alpha: float, gamma: float, i: float, x: float) -> tuple[float, float]:
    """(D_i(x), P(i+1, γx)/γ) upwards from term 0.

    Its error is a rounding of term 0, of which V contains all.
    """
    scale = 1.0 / (alpha + gamma)
    gx = gamma * x
    value, reach = first_term(alpha, gamma, x)
    probability = math.exp(-gx) / gamma
    unsignalled = alpha * math.exp(-alpha * x)
    for j in range(1, int(i) + 1):
        probability *= gx * _RECIPROCALS[j]
        reach -= probability
        value = (gamma * value - unsignalled * reach) * scale
    return max(value, 0.0), max(reach, 0.0)


@compiled
def _short_series(scale: float, ax: float, gx: float, k: int) -> tuple[float, float]:
    """The sums of :func:`_series_term` where fewer than a hundred powers count."""
    difference = ax * _RECIPROCALS[k]
    power = gx * _RECIPROCALS[k]
    total = difference
    powers = 1.0 + power
    while difference > 1e-17 * total or power > 1e-17 * powers:
        k += 1
        difference = ((ax + gx) * difference + ax * power) * _RECIPROCALS[k]
        power = gx * power * _RECIPROCALS[k]
        total += difference
        powers += power
    return scale * math.exp(-ax) * total, scale * powers


@compiled
def _series_term(alpha: float, gamma: float, i: float, x: float) -> tuple[float, float]:
    """(D_i(x), P(i+1, γx)/γ) as series of positive terms.

    D_i = e^{−cx} γ^i Σ_{m≥1} x^{i+1+m} (c^m − γ^m)/(i+1+m)!, scaled by its first power.
    """
    ax = alpha * x
    gx = gamma * x
    cx = ax + gx
    scale = poisson_probability(i, gx) * x / (i + 1.0)
    if i < _RECURRENCE_BELOW and cx <= _RECURRENCE_ABOVE:
        return _short_series(scale, ax, gx, int(i) + 2)
    k = i + 2.0
    difference = ax / k
    power = gx / k
    total = difference
    powers = 1.0 + power
    while difference > 1e-17 * total or power > 1e-17 * powers:
        k += 1.0
        difference = (cx * difference + ax * power) / k
        power = gx * power / k
        total += difference
        powers += power
    return scale * math.exp(-ax) * total, scale * powers


@compiled
def _term_of_many(alpha: float, gamma: float, i: float, x: float) -> tuple[float, float]:
    """(D_i(x), P(i+1, γx)/γ) from 10⁵ on, D_i as its integral α∫e^{−αy}P(i+1, γy)dy/γ, in which
    e^{−αy} does not move while P rises from 0 to 1."""
    gx = gamma * x
    tail = poisson_tail_of_many(i, gx)
    passed = x * tail - (i + 1.0) / gamma * (tail - poisson_probability(i + 1.0, gx))
    return alpha * math.exp(-alpha * x) / gamma * max(passed, 0.0), tail / gamma


@compiled
def term(alpha: float, gamma: float, i: float, x: float) -> tuple[float, float]:
    """(D_i(x), P(i+1, γx)/γ) for whole i ≥ 0 and x > 0 days."""
    gx = gamma * x
    if gx > i + 10.0 * math.sqrt(i + 1.0) + 40.0:
        offset = (i + 1.0) * math.log1p(alpha / gamma)
        return saturated_terms(alpha * x, 1.0, offset, 1.0) / gamma, 1.0 / gamma
    if i >= _MANY:
        return _term_of_many(alpha, gamma, i, x)
    if i == 0.0:
        return first_term(alpha, gamma, x)
    if gx + alpha * x > _RECURRENCE_ABOVE and i < _RECURRENCE_BELOW:
        return _recurrence_term(alpha, gamma, i, x)
    if alpha * x > _STALE:
        # the series would overflow; the second part of the difference is out of sight
        c = alpha + gamma
        reach = poisson_tail(i, gx) / gamma
        first = math.exp(i * -math.log1p(alpha / gamma)) * poisson_tail(i, c * x) / c
        return max(first - math.exp(-alpha * x) * reach, 0.0), reach
    return _series_term(alpha, gamma, i, x)


@compiled
def _saturated_count(gamma: float, elapsed: float, waves: float, signals: float, n: float) -> float:
    """How many leading terms have P(i+1, γx_i) = 1 to the last digit."""
    if not gamma * elapsed + signals * waves > 50.0:
        return 0.0
    low = 0.0
    high = n + 1.0
    while low < high:
        middle = np.floor(0.5 * (low + high))
        reach = gamma * elapsed + (signals - middle) * waves
        if reach > middle + 10.0 * math.sqrt(middle + 1.0) + 40.0:
            low = middle + 1.0
        else:
            high = middle
    return low


@compiled
def _sum_of_terms(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: float, terms: float
) -> tuple[float, float]:
    """(V/μ, ψ) by their terms 0..N."""
    beta = kappa / alpha
    staleness = alpha * elapsed + kappa * signals
    stale = staleness > _STALE
    saturated = _saturated_count(gamma, elapsed, gamma * beta, signals, terms)
    value = 0.0
    psi = saturated / gamma
    if saturated > 0.0 and not stale:
        offset = math.log1p(alpha / gamma)
        value = saturated_terms(staleness, kappa + offset, offset, saturated) / gamma
    i = saturated
    share = math.exp(-i * kappa)
    weight = math.exp(-kappa)
    while i <= terms:
        x = elapsed + (signals - i) * beta
        if not x > 0.0:
            break
        part = 0.0
        if stale and i < _MANY:
            reach = poisson_tail(i, gamma * x) / gamma
        else:
            part, reach = term(alpha, gamma, i, x)
            value += share * part
        psi += reach
        if reach <= _NEXT_TO_NOTHING * psi and share * part <= _NEXT_TO_NOTHING * value:
            break
        share *= weight
        i += 1.0
    if stale:
        value = 1.0 / (alpha - gamma * math.expm1(-kappa))
    return value, psi


@compiled
def waves_needed(strength: float, length: float) -> float:
    """Pairs of poles that matter at ι = length·β, for G = strength; large means: do not."""
    if length * 17.0 < 2.0 * _NEGLIGIBLE:
        return math.inf
    frequency = strength * math.sqrt(math.expm1(2.0 * _NEGLIGIBLE / length))
    # not math.floor, whose compiled form is an integer and overflows
    return float(np.floor((frequency + 0.5 * math.pi) / (2.0 * math.pi)))


@compiled
def most_waves(strength: float, length: float) -> float:
    """With more waves than this at ι = length·β the sum is shorter, for G = strength.

    Of its terms those with |G(length − i) − i| ≤ 10√(i+1) + 40 are formed one by one: however many
    signals there are, few where each counts for much time. One of them takes as long as a few waves
    or, below 10⁵, as the series of its P.
    """
    spread = 10.0 * math.sqrt(length + 1.0) + 40.0
    formed = 1.0 + min(length, 2.0 * spread / (1.0 + strength))
    waves_a_term = 3.0 if length >= _MANY else 10.0 + 0.1 * math.sqrt(length)
    return waves_a_term * formed


@compiled
def wave_pole(strength: float, k: float) -> tuple[float, float]:
    """Real and imaginary part of ζ_k: the k-th root of ζ + G(1 − e^{−ζ}) = 0, by Newton's steps.

    Solved as ζ + ln(1 + ζ/G) = 2πik, which has one root for each k.
    """
    turn = 2.0 * math.pi * k
    real = -0.5 * math.log1p((turn / strength) ** 2)
    imaginary = turn - math.atan2(turn, strength)
    for _ in range(8):
        shifted = strength + real
        modulus = shifted * shifted + imaginary * imaginary
        residual_real = real + 0.5 * math.log(modulus) - math.log(strength)
        residual_imaginary = imaginary + math.atan2(imaginary, shifted) - turn
        slope_real = 1.0 + shifted / modulus
        slope_imaginary = -imaginary / modulus
        size = slope_real * slope_real + slope_imaginary * slope_imaginary
        step_real = (residual_real * slope_real + residual_imaginary * slope_imaginary) / size
        step_imaginary = (residual_imaginary * slope_real - residual_real * slope_imaginary) / size
        real -= step_real
        imaginary -= step_imaginary
        if abs(step_real) + abs(step_imaginary) < 1e-9 * (1.0 + imaginary):
            break
    return real, imaginary


@compiled
def _exponential_remainders(kappa: float) -> tuple[float, float]:
    """(κ + expm1(−κ), κ²/2 − κ − expm1(−κ)), both without cancellation."""
    if kappa < 0.5:
        term = kappa * kappa * kappa / 6.0
        cubic = term
        k = 3.0
        while abs(term) > 1e-17 * cubic:
            k += 1.0
            term *= -kappa / k
            cubic += term
        return 0.5 * kappa * kappa - cubic, cubic
    excess = kappa + math.expm1(-kappa)
    return excess, 0.5 * kappa * kappa - excess


@compiled
def _spectrum(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: float, waves: float
) -> tuple[float, float]:
    """(V/μ, ψ) by the linear tail and ``waves`` pairs of poles."""
    beta = kappa / alpha
    strength = gamma * beta
    length = signals + elapsed / beta
    staleness = alpha * elapsed + kappa * signals
    psi = beta * (length + 0.5 * strength / (1.0 + strength)) / (1.0 + strength)
    excess, cubic = _exponential_remainders(kappa)
    change_rate = alpha - gamma * math.expm1(-kappa)
    drift = alpha + gamma * kappa
    fresh = math.exp(-staleness)
    square = 0.5 * gamma * kappa * kappa
    jumps = square * (gamma * excess / change_rate - math.expm1(-staleness)) / drift
    value = (unit_value(staleness) + jumps - gamma * cubic / change_rate) / drift
    for k in range(1, int(waves) + 1):
        real, imaginary = wave_pole(strength, float(k))
        pole = complex(real, imaginary)
        amplitude = math.exp(real * length)
        phase = imaginary * length
        wave = complex(amplitude * math.cos(phase), amplitude * math.sin(phase))
        wave /= pole * (1.0 + strength + pole)
        psi += 2.0 * beta * wave.real
        value -= 2.0 * fresh * kappa * beta * (wave / (kappa - pole)).real
    return value, psi


@compiled
def noisy_value_and_psi(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: float
) -> tuple[float, float]:
    """(V/μ, ψ) for α > 0, 0 < κ < ∞, γ > 0 at ``elapsed`` ≥ 0 days and whole ``signals`` ≥ 0."""
    periods = alpha * elapsed / kappa
    terms = signals + np.floor(periods)
    if terms >= 5.0:
        strength = gamma * kappa / alpha
        length = signals + periods
        # Of more terms than can be counted each is beyond the last digit, and so are the waves.
        waves = waves_needed(strength, length) if length < MOST_COUNTED else 0.0
        if waves <= 1.0 + 0.1 * terms and (waves <= _FEW or waves <= most_waves(strength, length)):
            return _spectrum(alpha, kappa, gamma, elapsed, signals, waves)
    return _sum_of_terms(alpha, kappa, gamma, elapsed, signals, terms)
