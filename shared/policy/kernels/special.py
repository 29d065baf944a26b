"""Special functions of the crawl value, each accurate to a few units in the last place."""

import math

from shared.policy.compiled import compiled

_TWO_PI = 2.0 * math.pi
_SERIES_BELOW = 0.4

MOST_COUNTED = 1e15
"""Up to here numbers of signals go on by one."""

_OUT_OF_SIGHT = 700.0
"""e to minus this is nothing beside 1, and still a number."""


@compiled
def unit_value(u: float) -> float:
    """h(u) = 1 − (1+u)e^{−u}: the crawl value of a page without signals, per unit of μ/Δ [B]."""
    if not u > 0.0:
        return 0.0
    if u < _SERIES_BELOW:
        # e^{-u} (e^u - 1 - u): every term positive; two interleaved Horner chains run in parallel
        square = u * u
        even = 1.0 / 479001600.0 + square / 87178291200.0
        even = 1.0 / 3628800.0 + square * even
        even = 1.0 / 40320.0 + square * even
        even = 1.0 / 720.0 + square * even
        even = 1.0 / 24.0 + square * even
        even = 0.5 + square * even
        odd = 1.0 / 39916800.0 + square / 6227020800.0
        odd = 1.0 / 362880.0 + square * odd
        odd = 1.0 / 5040.0 + square * odd
        odd = 1.0 / 120.0 + square * odd
        odd = 1.0 / 6.0 + square * odd
        return math.exp(-u) * square * (even + u * odd)
    if u == math.inf:
        return 1.0
    return 1.0 - (1.0 + u) * math.exp(-u)


@compiled
def unit_value_inverse(y: float) -> float:
    """h⁻¹(y): the u ≥ 0 with h(u) = y; infinite from y = 1 on.  By Halley's steps."""
    if y >= 1.0:
        return math.inf
    if not y > 0.0:
        return 0.0
    if y < 0.6:
        root = math.sqrt(2.0 * y)
        u = root * (1.0 + root * (1.0 / 3.0 + root * (11.0 / 72.0 + root * 0.085)))
    else:
        level = -math.log1p(-y)
        u = level + math.log(1.0 + level + math.log(1.0 + level + math.log(1.0 + level)))
    for _ in range(4):
        newton = (unit_value(u) - y) / (u * math.exp(-u))
        step = newton / (1.0 - 0.5 * newton * (1.0 - u) / u)
        u -= step
        if abs(step) < 1e-6 * u:
            break
    return u


@compiled
def _stirling_error(k: float) -> float:
    """ln k! − [½ ln(2πk) + k ln k − k], for k ≥ 16 (Loader 2000)."""
    square = k * k
    tail = 1.0 / 1188.0 - 691.0 / (360360.0 * square)
    return (
        1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - tail / square) / square) / square) / square
    ) / k


@compiled
def _poisson_deviance(k: float, x: float) -> float:
    """k ln(k/x) + x − k without cancellation near k = x (Loader 2000)."""
    if abs(k - x) < 0.1 * (k + x):
        ratio = (k - x) / (k + x)
        total = (k - x) * ratio
        term = 2.0 * k * ratio
        square = ratio * ratio
        for j in range(1, 100):
            term *= square
            previous = total
            total += term / (2 * j + 1)
            if total == previous:
                break
        return total
    return k * math.log(k / x) + x - k


@compiled
def poisson_probability(k: float, x: float) -> float:
    """Pr(Poisson(x) = k) for whole k ≥ 0, x > 0; full relative accuracy for any k."""
    if k < 16.0:
        probability = math.exp(-x)
        for j in range(1, int(k) + 1):
            probability *= x / j
        if probability > 1e-290:
            return probability
        return math.exp(k * math.log(x) - x - math.lgamma(k + 1.0))
    exponent = -_stirling_error(k) - _poisson_deviance(k, x)
    return math.exp(exponent) / math.sqrt(_TWO_PI * k)


@compiled
def poisson_tail(i: float, x: float) -> float:
    """P(i+1, x) = Pr(Poisson(x) > i), the R^i(x) of [N]; whole i ≥ 0, sums of positive terms."""
    if not x > 0.0:
        return 0.0
    if x > i + 10.0 * math.sqrt(i + 1.0) + 40.0:
        return 1.0
    if i == 0.0:
        return -math.expm1(-x)
    probability = poisson_probability(i, x)
    if x < i + 2.0:
        k = i + 1.0
        term = x / k
        total = term
        while term > 1e-17 * total:
            k += 1.0
            term *= x / k
            total += term
        return probability * total
    term = 1.0
    total = 1.0
    k = i
    while k > 0.0 and term > 1e-17 * total:
        term *= k / x
        total += term
        k -= 1.0
    return 1.0 - probability * total


@compiled
def poisson_tail_of_many(i: float, x: float) -> float:
    """P(i+1, x) for i ≥ 10⁵, x > 0, within 1e-14, at the same cost for any i (Temme 1979).

    In η with ½η² = x/a − 1 − ln(x/a), a = i + 1: the normal distribution, and its first corrections
    in 1/√a.
    """
    a = i + 1.0
    deviance = _poisson_deviance(a, x)
    if deviance > _OUT_OF_SIGHT:
        return 0.0 if x < a else 1.0
    eta = math.copysign(math.sqrt(2.0 * deviance / a), x - a)
    first = -1.0 / 3.0 + eta * (1.0 / 12.0 + eta * (-2.0 / 135.0 + eta / 864.0))
    second = -1.0 / 540.0 - eta / 288.0
    bend = math.exp(-deviance) / math.sqrt(_TWO_PI * a) * (first + second / a)
    tail = 0.5 * math.erfc(-eta * math.sqrt(0.5 * a)) - bend
    return min(max(tail, 0.0), 1.0)
