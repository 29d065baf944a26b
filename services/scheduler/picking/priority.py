"""Which page goes first: its tier, then its crawl value. One number says both.

Tiers, the most urgent first: pages that were never crawled, pages beyond their maximum age, pages
whose request was not answered, and all others by crawl value. A priority is the crawl value, or
the importance times a huge power for the upper tiers, so that comparing priorities is enough:
those of the lowest tier are at most 1e50. A priority never falls as time passes, unless something
happens to its page; those of the upper tiers do not change at all.
"""

import math
from typing import Any, Final

import numpy as np

from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.rows import ACTIVE, NEVER, Rows
from shared.contracts.messages import Reason
from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import value_and_psi, value_at_evidence
from shared.policy.kernels.threshold import due_after_days_scalar, threshold_staleness_scalar
from shared.units import SECONDS_PER_DAY

BY_VALUE: Final = 0
UNANSWERED: Final = 1
OVER_AGE: Final = 2
NEW: Final = 3
NOT_NOW: Final = -1
"""The page cannot be crawled: gone, removed, in flight, or failed a moment ago."""

REASONS: Final[tuple[Reason, ...]] = ("value", "retry", "max-age", "new")
"""By tier."""

HIGHEST_VALUE: Final = 1e50
"""Priorities above are of the upper tiers."""

_LEAST: Final = 1e-25
_TIER_FACTOR: Final = 1e80

LEAST_NEW: Final = _LEAST * _TIER_FACTOR**NEW
"""Priorities from here on are of pages that were never crawled."""

_CAUTION: Final = 1.0 - 1e-6
"""Pages are looked at a little early, so that rounding never makes it late."""


@compiled
def crawl_value_of(page: Any, now: float, uniform: bool) -> float:
    """Crawl value of a page (or its age in days, under the uniform policy), at most 1e50."""
    elapsed = (now - page.last_crawled_at) / SECONDS_PER_DAY
    if uniform:
        value = elapsed
    elif page.importance > 0.0:
        alpha, kappa, gamma = np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma)
        signals = np.float64(page.signals)
        if signals == np.floor(signals):
            unit, _ = value_and_psi(alpha, kappa, gamma, elapsed, signals)
        else:
            unit, _ = value_at_evidence(alpha, kappa, gamma, elapsed, kappa * signals)
        value = np.float64(page.importance) * unit
    else:
        value = 0.0
    return min(value, HIGHEST_VALUE) if value > 0.0 else 0.0


@compiled
def tier_of(page: Any, attempts: Rows, now: float) -> int:
    """The tier of a page, host limits aside."""
    if page.status != ACTIVE:
        return NOT_NOW
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        if attempt.deadline > now or attempt.retry_at > now:
            return NOT_NOW
        if attempt.deadline > NEVER:
            return UNANSWERED
    if page.last_crawled_at == NEVER:
        return NEW
    if now - page.last_crawled_at >= page.max_age:
        return OVER_AGE
    return BY_VALUE


@compiled
def tier_priority(page: Any, tier: int) -> float:
    """The priority of a page in one of the upper tiers."""
    weight = min(max(np.float64(page.importance), _LEAST), HIGHEST_VALUE)
    for _ in range(tier):
        weight *= _TIER_FACTOR
    return weight


@compiled
def priority_of(page: Any, attempts: Rows, now: float, uniform: bool) -> float:
    """The priority of a page, host limits aside; 0: not to be crawled."""
    tier = tier_of(page, attempts, now)
    if tier == NOT_NOW:
        return 0.0
    if tier == BY_VALUE:
        return crawl_value_of(page, now, uniform)
    return tier_priority(page, tier)


@compiled
def staleness_at(page: Any, guard: float, uniform: bool) -> float:
    """s* of a page under a guard, a little less than exact; days under the uniform policy."""
    if uniform:
        return guard * _CAUTION
    if not page.importance > 0.0:
        return math.inf
    target = guard / np.float64(page.importance)
    staleness, _ = threshold_staleness_scalar(
        np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma), target
    )
    return staleness * _CAUTION


@compiled
def _time_of_value(page: Any, guard: float, uniform: bool) -> float:
    """When a page's crawl value reaches a guard, if nothing happens; finds and keeps its s*."""
    if np.isnan(page.due_staleness):
        page.due_staleness = staleness_at(page, guard, uniform)
    staleness = np.float64(page.due_staleness)
    days: float = staleness
    if not uniform:
        evidence = np.float64(page.kappa) * np.float64(page.signals) if page.signals > 0 else 0.0
        days = due_after_days_scalar(staleness, np.float64(page.alpha), evidence)
    time: float = page.last_crawled_at + days * SECONDS_PER_DAY
    return time


@compiled
def due_at(page: Any, attempts: Rows, guard: float, uniform: bool) -> float:
    """From when on a page's priority is `guard` or more; infinite: only an event can do that.

    The page's `due_staleness` is taken to be of this guard, or of a lower one, unless unset.
    """
    if page.status != ACTIVE:
        return math.inf
    ready = NEVER
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        ready = max(attempt.deadline, attempt.retry_at)
        if attempt.deadline > NEVER:
            return ready if tier_priority(page, UNANSWERED) >= guard else math.inf
    if page.last_crawled_at == NEVER:
        return ready if tier_priority(page, NEW) >= guard else math.inf
    due = math.inf
    if guard <= HIGHEST_VALUE:
        due = _time_of_value(page, guard, uniform)
    if page.max_age < np.inf and tier_priority(page, OVER_AGE) >= guard:
        due = min(due, page.last_crawled_at + np.float64(page.max_age))
    return max(due, ready)
