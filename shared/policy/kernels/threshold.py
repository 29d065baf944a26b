"""The inverse of the crawl value of one page: the state in which it reaches a threshold.

The state is given as a staleness exponent s* (dimensionless): a page is due once αt + e ≥ s*.
Unlike the equivalent time ι = s*/α it also covers pages with α = 0, which only signals make due.
"""

import math

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import LONGEST_DAYS, change_rate_scalar, fully_signalled
from shared.policy.kernels.noisy import first_term, noisy_value_and_psi
from shared.policy.kernels.special import MOST_COUNTED, unit_value_inverse

_CLOSE = 1e-9
"""Newton's last step, relative: its successor would be below rounding."""


_HIGHEST_LEVEL = 1.0 - 1e-15
"""A threshold closer than this to μ/Δ cannot be told from it: V never gets there."""


@compiled
def _staircase_threshold(kappa: float, gamma: float, target: float) -> tuple[float, float]:
    """(s*, ψ) where every change is signalled (α = 0)."""
    if kappa == math.inf:
        return -math.log1p(-gamma * target), 1.0 / gamma
    change_rate = -gamma * math.expm1(-kappa)
    low = 0.0
    high = max(1.0, np.ceil(unit_value_inverse(target * change_rate) / kappa))
    while high < MOST_COUNTED and fully_signalled(kappa, gamma, high, 0.0)[0] < target:
        low = high
        high *= 2.0
    if not high < MOST_COUNTED:
        return math.inf, math.inf
    while high - low > 1.0:
        middle = np.floor(0.5 * (low + high))
        if fully_signalled(kappa, gamma, middle, 0.0)[0] < target:
            low = middle
        else:
            high = middle
    missing = gamma * (target - fully_signalled(kappa, gamma, low, 0.0)[0])
    share = min(missing * math.exp(kappa * low) / high, 1.0)
    part = min(-math.log1p(-share), kappa)
    return kappa * low + part, high / gamma


@compiled
def _value_at_time(alpha: float, kappa: float, gamma: float, iota: float) -> tuple[float, float]:
    """(V/μ, ψ) at ι days for α > 0 and γ > 0, noiseless signals included."""
    if kappa == math.inf:
        return first_term(alpha, gamma, iota)
    return noisy_value_and_psi(alpha, kappa, gamma, iota, 0.0)


@compiled
def _first_guess(alpha: float, gamma: float, target: float, unit: float) -> float:
    """A start for ι: V ≈ αι²/(2+γι) while little has been missed, s ≈ h⁻¹(ΔV) later."""
    half = 0.5 * gamma * target
    early = (half + math.sqrt(half * half + 2.0 * alpha * target)) / alpha
    return min(early, unit / alpha)


@compiled
def threshold_staleness_scalar(
    alpha: float, kappa: float, gamma: float, target: float
) -> tuple[float, float]:
    """(s*, ψ): where V/μ reaches ``target`` = Λ/μ (days), and the days between crawls then.

    Both are infinite where V never gets there (Λ ≥ μ/Δ), both 0 where target ≤ 0.
    """
    return threshold_staleness_from(alpha, kappa, gamma, target, 0.0)


@compiled
def threshold_staleness_from(
    alpha: float, kappa: float, gamma: float, target: float, start: float
) -> tuple[float, float]:
    """As :func:`threshold_staleness_scalar`, from a first guess of s* (0: none).

    Newton's method on h⁻¹(ΔV), which is nearly linear in ι, kept inside a bracket.
    """
    if not target > 0.0:
        return 0.0, 0.0
    change_rate = change_rate_scalar(alpha, kappa, gamma)
    level = target * change_rate
    if not (change_rate > 0.0 and level < _HIGHEST_LEVEL):
        return math.inf, math.inf
    if not (gamma > 0.0 and kappa > 0.0):
        unit = unit_value_inverse(level)
        return unit, unit / alpha
    if not alpha > 0.0 or (kappa < math.inf and kappa > LONGEST_DAYS * alpha):
        return _staircase_threshold(kappa, gamma, target)
    unit = unit_value_inverse(level)
    iota = start / alpha if start > 0.0 else _first_guess(alpha, gamma, target, unit)
    low = 0.0
    high = math.inf
    psi = 0.0
    previous_iota = 0.0
    previous_psi = 0.0
    for _ in range(200):
        value, psi = _value_at_time(alpha, kappa, gamma, iota)
        if value >= target:
            high = iota
        else:
            low = iota
        reached = unit_value_inverse(change_rate * value)
        slope = change_rate * alpha * math.exp(-alpha * iota) * psi
        step = (reached - unit) * reached * math.exp(-reached) / slope
        following = iota - step
        if abs(step) <= _CLOSE * iota:
            if previous_iota != iota:
                psi -= step * (psi - previous_psi) / (iota - previous_iota)
            iota = following
            break
        previous_iota, previous_psi = iota, psi
        if high < math.inf and high - low <= 4e-16 * high:
            break
        if not low < following < high:
            following = min(2.0 * iota, 0.5 * (low + high))
        iota = following
    return alpha * iota, psi


@compiled
def due_after_days_scalar(staleness_threshold: float, alpha: float, evidence: float) -> float:
    """Days after its last crawl at which a page with ``evidence`` reaches s*; 0 if overdue.

    Infinite where time alone never makes it due.
    """
    if staleness_threshold == math.inf:
        return math.inf
    missing = staleness_threshold - evidence
    if not missing > 0.0:
        return 0.0
    if not alpha > 0.0:
        return math.inf
    return missing / alpha
