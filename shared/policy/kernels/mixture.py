"""A mixture of two penalties as a crawl value: that a copy is stale, and for how long it has been.

In the state s = αt + κn a page costs (1 − w)(1 − e^{−s}) + wA a day. A is the age of what is stale,
in days: 0 while the copy is fresh. Without signals A = t − (1 − e^{−αt})/α. With signals it would
depend on when each of them came, which nobody keeps; so A is a mean over the ways on which a page
gets to s: as if it had got there by time alone until its first signal, and then at its mean pace

    A′(ι) = (1 − e^{−αι})(1 + Ge^{−γι})/(1 + G),    ι = s/α,    G = γκ/α

which is exact as γ → 0, as κ → 0, and before the first signal of a page whose signals do not lie.
As for any penalty c that rises with s, V′(ι) = μc′(ι)ψ(ι), with the ψ of the freshness objective.
So V is a sum of transforms ∫e^{−θy}ψ dy, each of them the crawl value of a page with θ instead of
α, and signals that are worth as many days. V is unbounded for w > 0: no page is given up.
"""

import math

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import change_rate_scalar, fully_signalled
from shared.policy.kernels.noisy import noisy_value_and_psi
from shared.policy.kernels.special import unit_value, unit_value_inverse

MOST_EVIDENCE = 40.0
"""A signal counts as no more: e^−40 is nothing beside 1, and the next signal still counts."""

LEAST_EVIDENCE = 1e-5
"""Signals that say less count as time: a page then gets to s at its mean pace."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)

_FEW = 1e-20
"""A share of α that stands for 0."""

_CLOSE = 1e-10
"""Newton's last step, relative."""

_MOST_SIGNALS = 1e15


@compiled
def unit_age(u: float) -> float:
    """u²/2 − 1 + (1+u)e^{−u}: the value of age without signals, per unit of μ/Δ²."""
    if not u > 0.0:
        return 0.0
    if u < 0.4:
        total = 0.0
        power = u * u / 2.0
        for k in range(3, 20):
            power *= -u / k
            total -= (k - 1) * power
        return total
    return 0.5 * u * u - unit_value(u)


@compiled
def _age_inverse(y: float) -> float:
    """The u with `unit_age(u)` = y, from above."""
    u = min(float(np.cbrt(3.0 * y)) + math.sqrt(y), math.sqrt(2.0 * y + 2.0))
    for _ in range(50):
        step = (unit_age(u) - y) / (u * -math.expm1(-u))
        u -= step
        if abs(step) <= 1e-9 * u:
            break
    return u


@compiled
def steady_value(pace: float, weight: float, staleness: float) -> float:
    """V/μ of a page that gets to its state at a steady `pace` (per day), as one without signals."""
    value = weight * unit_age(staleness) / pace / pace
    if weight < 1.0:
        value += (1.0 - weight) * unit_value(staleness) / pace
    return value


@compiled
def steady_threshold(pace: float, weight: float, target: float) -> float:
    """s*, where `steady_value` is the target (days), above 0; infinite: it never is."""
    low = 0.0
    high = math.inf
    if weight > 0.0:
        high = _age_inverse(target * pace / weight * pace)
    if weight < 1.0:
        high = min(high, unit_value_inverse(target * pace / (1.0 - weight)))
    if high == math.inf:
        return high
    point = high
    for _ in range(100):
        excess = steady_value(pace, weight, point) - target
        if excess > 0.0:
            high = point
        else:
            low = point
        slope = (1.0 - weight) * point * math.exp(-point) / pace
        slope += weight * point * -math.expm1(-point) / pace / pace
        step = excess / slope if slope > 0.0 else math.inf
        if abs(step) <= _CLOSE * point:
            return max(point - step, 0.0)
        following = point - step
        if not low < following < high:
            following = 0.5 * (low + high)
        point = following
    return point


@compiled
def _pace_share(strength: float, gamma: float, days: float) -> float:
    """dτ/dι as A has it: 1 at first, 1/(1+G) in the long run."""
    return (1.0 + strength * math.exp(-gamma * days)) / (1.0 + strength)


@compiled
def mixture_slope(
    alpha: float, kappa: float, gamma: float, weight: float, staleness: float
) -> float:
    """dc/ds in the state s, for α > 0: days (a day of age costs what a stale copy does)."""
    strength = gamma * kappa / alpha
    share = _pace_share(strength, gamma, staleness / alpha) / alpha
    return (1.0 - weight) * math.exp(-staleness) - weight * math.expm1(-staleness) * share


@compiled
def _first_age(alpha: float, gamma: float, strength: float, days: float) -> float:
    """∫(1−e^{−αy})ψ dA-share before the first whole β: ψ = (1 − e^{−γy})/γ there."""
    if gamma * days > 5.0:
        drift = alpha * days
        level = (0.5 * drift * drift - _cubic_rest(drift)) / alpha
        stale = -math.expm1(-drift)
        first = alpha - math.exp(-gamma * days) * (alpha + gamma * stale)
        first /= gamma * (alpha + gamma)
        second = alpha - math.exp(-2.0 * gamma * days) * (alpha + 2.0 * gamma * stale)
        second /= 2.0 * gamma * (alpha + 2.0 * gamma)
        total = level + (strength - 1.0) * first - strength * second
        return total / gamma / (1.0 + strength)
    total = 0.0
    left = 0.0
    for edge in (8.0, 40.0, math.inf):
        right = min(edge / (alpha + gamma), days)
        half = 0.5 * (right - left)
        for node in range(_NODES.size):
            y = left + half * (1.0 + _NODES[node])
            part = math.expm1(-alpha * y) * math.expm1(-gamma * y) / gamma
            total += half * _WEIGHTS[node] * part * _pace_share(strength, gamma, y)
        left = right
        if right >= days:
            break
    return total


@compiled
def _cubic_rest(u: float) -> float:
    """u²/2 − (u − (1 − e^{−u})), without cancellation."""
    if u < 0.4:
        total = 0.0
        power = u * u / 2.0
        for k in range(3, 20):
            power *= -u / k
            total -= power
        return total
    return 0.5 * u * u - u - math.expm1(-u)


@compiled
def _age_value(
    alpha: float, kappa: float, gamma: float, days: float, signals: float, fresh: float
) -> float:
    """V/μ of the age alone, for α > 0 and γ > 0; `fresh` is V/μ of the freshness objective."""
    strength = gamma * kappa / alpha
    if signals == 0.0 and alpha * days < kappa:
        return _first_age(alpha, gamma, strength, days)
    staleness = alpha * days + kappa * signals
    few = _FEW * alpha / max(staleness, 1.0)
    beta = kappa / alpha
    both = alpha + gamma
    evenly = noisy_value_and_psi(few, few * beta, gamma, days, signals)[0] / few - fresh / alpha
    early = noisy_value_and_psi(gamma, gamma * beta, gamma, days, signals)[0] / gamma
    early -= noisy_value_and_psi(both, both * beta, gamma, days, signals)[0] / both
    return (max(evenly, 0.0) + strength * max(early, 0.0)) / (1.0 + strength)


@compiled
def _staircase_age(kappa: float, gamma: float, signals: float) -> float:
    """V/μ of the age alone after so many whole signals, where every change is signalled."""
    fresh = fully_signalled(kappa, gamma, signals, 0.0)[0]
    return max(0.5 * signals * (signals + 1.0) / gamma - fresh / kappa, 0.0) / gamma


@compiled
def _staircase(
    kappa: float, gamma: float, weight: float, signals: float, part: float
) -> tuple[float, float]:
    """(V/μ, ψ) where every change is signalled (α = 0): part of a signal is part of the step."""
    fresh, psi = fully_signalled(kappa, gamma, signals, part)
    age = _staircase_age(kappa, gamma, signals)
    if part > 0.0:
        age += part / kappa * (_staircase_age(kappa, gamma, signals + 1.0) - age)
    return (1.0 - weight) * fresh + weight * age, psi


@compiled
def mixture_value_and_psi(
    alpha: float, kappa: float, gamma: float, weight: float, days: float, signals: float
) -> tuple[float, float]:
    """(V/μ, ψ) of the mixture, each in days, `days` and `signals` after a crawl.

    `signals` need not be whole: those of some sources count for more than others'. `weight` w is
    that of age, in (0, 1].
    """
    days = max(days, 0.0)
    kappa = min(kappa, MOST_EVIDENCE)
    if not (gamma > 0.0 and kappa > LEAST_EVIDENCE):
        pace = alpha + (gamma * kappa if gamma > 0.0 and kappa > 0.0 else 0.0)
        if not pace > 0.0:
            return 0.0, days
        staleness = alpha * days + (kappa * signals if kappa > 0.0 else 0.0)
        return steady_value(pace, weight, staleness), staleness / pace
    whole = np.floor(signals + 1e-9)
    part = max(signals - whole, 0.0) * kappa
    if not alpha > 0.0:
        return _staircase(kappa, gamma, weight, whole, part)
    days += part / alpha
    fresh, psi = noisy_value_and_psi(alpha, kappa, gamma, days, whole)
    age = _age_value(alpha, kappa, gamma, days, whole, fresh)
    return (1.0 - weight) * fresh + weight * age, psi


@compiled
def _value_in_state(
    alpha: float, kappa: float, gamma: float, weight: float, staleness: float
) -> tuple[float, float]:
    """(V/μ, ψ) at s, for α > 0: whole signals and the days left over carry it, so that no digit is
    lost where a signal counts as more days than anybody waits."""
    signals = float(np.floor(staleness / kappa))
    days = max(staleness - signals * kappa, 0.0) / alpha
    return mixture_value_and_psi(alpha, kappa, gamma, weight, days, signals)


@compiled
def _staircase_threshold(
    kappa: float, gamma: float, weight: float, target: float
) -> tuple[float, float]:
    """(s*, ψ) where every change is signalled (α = 0)."""
    low = 0.0
    high = 1.0
    while _staircase(kappa, gamma, weight, high, 0.0)[0] < target:
        low = high
        high *= 2.0
        if high > _MOST_SIGNALS:
            return math.inf, math.inf
    while high - low > 1.0:
        middle = np.floor(0.5 * (low + high))
        if _staircase(kappa, gamma, weight, middle, 0.0)[0] < target:
            low = middle
        else:
            high = middle
    least = 0.0
    most = kappa
    for _ in range(50):
        part = 0.5 * (least + most)
        if _staircase(kappa, gamma, weight, low, part)[0] < target:
            least = part
        else:
            most = part
    return kappa * low + most, high / gamma


@compiled
def mixture_threshold(
    alpha: float, kappa: float, gamma: float, weight: float, target: float
) -> tuple[float, float]:
    """(s*, ψ): where V/μ of the mixture reaches `target` = Λ/μ (days), and the days between crawls.

    Both are infinite for a page that never changes, both 0 where the target is not above 0.
    Newton's steps between bounds, on V as seen through the value of a page of the same pace.
    """
    if not target > 0.0:
        return 0.0, 0.0
    if not change_rate_scalar(alpha, kappa, gamma) > 0.0:
        return math.inf, math.inf
    kappa = min(kappa, MOST_EVIDENCE)
    if not (gamma > 0.0 and kappa > LEAST_EVIDENCE):
        pace = alpha + (gamma * kappa if gamma > 0.0 and kappa > 0.0 else 0.0)
        staleness = steady_threshold(pace, weight, target)
        return staleness, staleness / pace
    if not alpha > 0.0:
        return _staircase_threshold(kappa, gamma, weight, target)
    pace = alpha + gamma * kappa
    wanted = steady_threshold(pace, weight, target)
    staleness, low, high, psi = wanted, 0.0, math.inf, 0.0
    for _ in range(200):
        value, psi = _value_in_state(alpha, kappa, gamma, weight, staleness)
        if value >= target:
            high = staleness
        else:
            low = staleness
        slope = mixture_slope(alpha, kappa, gamma, weight, staleness) * psi
        seen = steady_threshold(pace, weight, value) if value > 0.0 else 0.0
        steady_slope = (1.0 - weight) * seen * math.exp(-seen) / pace
        steady_slope += weight * seen * -math.expm1(-seen) / pace / pace
        step = (seen - wanted) * steady_slope / slope if slope > 0.0 else math.inf
        if abs(step) <= _CLOSE * staleness or high - low <= 4e-16 * high:
            break
        following = staleness - step
        if not low < following < high:
            following = 2.0 * staleness if high == math.inf else _between(low, high)
        staleness = following
    return staleness, psi


@compiled
def _between(low: float, high: float) -> float:
    """A point of the bracket, far down where it spans decades."""
    if low < 0.01 * high:
        return math.sqrt(max(low, 1e-12 * high) * high)
    return 0.5 * (low + high)
