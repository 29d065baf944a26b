"""Which page goes first: its tier, then its crawl value. One number says both.

Tiers, the most urgent first: pages that were never crawled, pages beyond their maximum age, pages
whose request was not answered, and all others by crawl value. A priority is the crawl value, or
the importance times a huge power for the upper tiers, so that comparing priorities is enough:
those of the lowest tier are at most 1e50. A priority never falls as time passes, unless something
happens to its page.
"""

from typing import Any, Final

import numpy as np

from services.scheduler.pages import ACTIVE, NEVER
from shared.contracts.messages import Reason
from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import value_and_psi, value_at_evidence

SECONDS_PER_DAY: Final = 86_400.0

BY_VALUE: Final = 0
UNANSWERED: Final = 1
OVER_AGE: Final = 2
NEW: Final = 3
NOT_NOW: Final = -1
"""The page cannot be crawled: gone, removed, in flight, or failed a moment ago."""

REASONS: Final[tuple[Reason, ...]] = ("value", "retry", "max-age", "new")
"""By tier."""

_LEAST: Final = 1e-25
_MOST: Final = 1e50
_TIER_FACTOR: Final = 1e80


@compiled
def crawl_value_of(page: Any, now: float, uniform: bool) -> float:
    """Crawl value of a page (or its age in days, under the uniform policy), at most 1e50."""
    elapsed = (now - page.last_crawled_at) / SECONDS_PER_DAY
    if uniform:
        value = elapsed
    elif page.importance > 0.0:
        signals = float(page.signals)
        if signals == np.floor(signals):
            unit, _ = value_and_psi(page.alpha, page.kappa, page.gamma, elapsed, signals)
        else:
            evidence = page.kappa * signals
            unit, _ = value_at_evidence(page.alpha, page.kappa, page.gamma, elapsed, evidence)
        value = page.importance * unit
    else:
        value = 0.0
    return min(value, _MOST) if value > 0.0 else 0.0


@compiled
def tier_of(page: Any, now: float) -> int:
    """The tier of a page, host limits aside."""
    if page.status != ACTIVE or page.deadline > now or page.retry_at > now:
        return NOT_NOW
    if page.deadline > NEVER:
        return UNANSWERED
    if page.last_crawled_at == NEVER:
        return NEW
    if now - page.last_crawled_at >= page.max_age:
        return OVER_AGE
    return BY_VALUE


@compiled
def priority_of(page: Any, now: float, uniform: bool) -> float:
    """The priority of a page, host limits aside; 0: not to be crawled."""
    tier = tier_of(page, now)
    if tier == NOT_NOW:
        return 0.0
    if tier == BY_VALUE:
        return crawl_value_of(page, now, uniform)
    weight: float = min(max(page.importance, _LEAST), _MOST)
    for _ in range(tier):
        weight *= _TIER_FACTOR
    return weight
