"""Which page goes first: its tier, then its crawl value. One number says both.

Tiers, the most urgent first: pages that somebody asks for at once, pages that were never crawled,
pages beyond their maximum age, and all others by crawl value. A page that has failed again and
again goes by its value, whatever else it is: what crawlers never answer must not outrank what they
can get. So does one whose crawl is worth less than the floor, but for new ones. None is crawled
before the least interval has passed since its last crawl; failures wait for as long
(`ShardRules.failed_retry`). Who asks for a page at once need not wait for either: until the request
is answered, or fails.

A priority is the crawl value; or for the upper tiers the importance, and of pages beyond their
maximum age how long they have been, times a huge power, so that comparing priorities is enough:
those of the lowest tier are at most 1e50. A priority never falls as time passes, unless something
happens to its page; those of the upper tiers do not change at all.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np

from services.scheduler.state.attempts import NO_ATTEMPT, failures_of, is_asked_anew
from services.scheduler.state.hosts import Objectives, objective_of
from services.scheduler.state.rows import ACTIVE, NEVER, Rows
from services.scheduler.state.rules import PickingRules
from shared.contracts.objectives import FRESHNESS
from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import value_and_psi, value_at_evidence
from shared.policy.kernels.threshold import due_after_days_scalar
from shared.policy.objectives import (
    jump_of,
    objective_threshold_scalar,
    objective_value_scalar,
)
from shared.rules.page_due import has_claim
from shared.rules.page_events import is_away
from shared.units import SECONDS_PER_DAY

BY_VALUE: Final = 0
RETRY: Final = 1
"""Of picks alone: by value, of a page whose last request failed, or was not answered."""

OVER_AGE: Final = 2
NEW: Final = 3
URGENT: Final = 4
"""Somebody asks for it at once."""

NOT_NOW: Final = -1
"""The page cannot be crawled: away, removed, in flight, or failed a moment ago."""

HIGHEST_VALUE: Final = 1e50
"""Priorities above are of the upper tiers."""

_LEAST: Final = 1e-25
_MOST: Final = 1e13
"""Importance beyond counts as this: no message may say more than 1e12."""

_TIER_FACTOR: Final = 1e40

_LATEST: Final = 2e11
"""Unix seconds: no page is beyond its maximum age as late as that."""

LEAST_NEW: Final = _LEAST * _TIER_FACTOR**NEW
"""Priorities from here on are of pages that were never crawled, or are asked for at once."""

_LEAST_URGENT: Final = _LEAST * _TIER_FACTOR**URGENT

_CAUTION: Final = 1.0 - 1e-6
"""Pages are looked at a little early, so that rounding never makes it late."""


class Terms(NamedTuple):
    """What priorities go by, for kernels."""

    uniform: bool
    """By age instead of crawl value."""
    least_interval: float
    """Clock seconds from a page's last crawl to the next at least."""
    least_value: float
    """Crawl value from which on a page beyond its maximum age has a claim for that."""
    in_turns: bool = False
    """Tiers have parts of the slots, and take turns."""
    objectives: Objectives | None = None
    """What the pages of each host are crawled for; None: freshness. An array here costs a sixth of
    all that picking costs, so where nothing is told there is none, for the compiler to see."""


def terms_of(rules: PickingRules, objectives: Objectives | None = None) -> Terms:
    """The part of the rules that priorities go by, and what the hosts' pages are crawled for."""
    in_turns = bool(rules.shares)
    return Terms(rules.uniform, rules.least_interval, rules.least_value, in_turns, objectives)


@compiled
def _other_value(page: Any, elapsed: float, objective: int) -> float:
    """Crawl value of a page of some importance, under another objective than freshness."""
    alpha, kappa, gamma = np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma)
    signals = np.float64(page.signals)
    unit: float = objective_value_scalar(objective, alpha, kappa, gamma, elapsed, signals)
    return np.float64(page.importance) * unit


@compiled
def crawl_value_of(page: Any, now: float, terms: Terms) -> float:
    """Crawl value of a page (or its age in days, under the uniform policy), at most 1e50."""
    elapsed = (now - page.last_crawled_at) / SECONDS_PER_DAY
    objective = objective_of(page, terms.objectives)
    if terms.uniform:
        value = elapsed
    elif objective != FRESHNESS and page.importance > 0.0:
        value = _other_value(page, elapsed, objective)
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
def is_looked_at(page: Any) -> bool:
    """Whether a page is away, but is looked at now and then in case that it comes back."""
    return bool(is_away(page.status) and page.attempt != NO_ATTEMPT)


@compiled
def tier_of(page: Any, attempts: Rows, now: float, terms: Terms) -> int:
    """The tier of a page, host limits aside."""
    if page.status != ACTIVE and not is_looked_at(page):
        return NOT_NOW
    goes_first = True
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        is_urgent = attempt.urgent_at > NEVER and attempt.urgent_at <= now
        is_anew = is_urgent and is_asked_anew(attempt)
        if attempt.deadline > now or (attempt.retry_at > now and not is_anew):
            return NOT_NOW
        # Who is asked for a moment later (clocks differ) goes by value until then: the priority of
        # what is among the urgent pages must not change.
        is_due = attempt.urgent_at <= now
        goes_first = is_due and has_claim(page.status, failures_of(page, attempt))
        if is_anew or (is_urgent and goes_first):
            return URGENT
    if page.last_crawled_at + terms.least_interval > now:
        return NOT_NOW
    return _tier_by_age(page, now, terms) if goes_first else BY_VALUE


@compiled
def _tier_by_age(page: Any, now: float, terms: Terms) -> int:
    """The tier of a page that nobody asks for, and that does not fail again and again."""
    if page.last_crawled_at == NEVER:
        return NEW
    if now - page.last_crawled_at >= page.max_age and (
        terms.least_value <= 0.0 or crawl_value_of(page, now, terms) >= terms.least_value
    ):
        return OVER_AGE
    return BY_VALUE


@compiled
def tier_priority(page: Any, tier: int) -> float:
    """The priority of a page in one of the upper tiers."""
    weight: float = np.float64(page.importance)
    if tier == OVER_AGE:
        # From when on it is, so that its priority does not change: the earlier, the later it is.
        weight = _LATEST - (page.last_crawled_at + np.float64(page.max_age))
    weight = min(max(weight, _LEAST), _MOST)
    for _ in range(tier):
        weight *= _TIER_FACTOR
    return weight


@compiled
def queue_of(priority: float, in_turns: bool) -> int:
    """Where a page waits for its turn: 0 by value, then the upper tiers; 0 if all go by priority.

    Priorities of the tiers lie far apart, so each says of which it is.
    """
    if not in_turns or priority <= HIGHEST_VALUE:
        return 0
    if priority < LEAST_NEW:
        return OVER_AGE - RETRY
    return NEW - RETRY if priority < _LEAST_URGENT else URGENT - RETRY


@compiled
def priority_of(page: Any, attempts: Rows, now: float, terms: Terms) -> float:
    """The priority of a page, host limits aside; 0: not to be crawled."""
    tier = tier_of(page, attempts, now, terms)
    if tier == NOT_NOW:
        return 0.0
    if tier == BY_VALUE:
        return crawl_value_of(page, now, terms)
    return tier_priority(page, tier)


@compiled
def staleness_at(page: Any, guard: float, terms: Terms) -> float:
    """s* of a page under a guard, or the index of its objective, a little less than exact; days
    under the uniform policy."""
    if terms.uniform:
        return guard * _CAUTION
    if not page.importance > 0.0:
        return math.inf
    target = guard / np.float64(page.importance)
    alpha, kappa, gamma = np.float64(page.alpha), np.float64(page.kappa), np.float64(page.gamma)
    objective = objective_of(page, terms.objectives)
    staleness, _ = objective_threshold_scalar(objective, alpha, kappa, gamma, target)
    return staleness * _CAUTION


@compiled
def _time_of_value(page: Any, guard: float, terms: Terms) -> float:
    """When a page's crawl value reaches a guard, if nothing happens; finds and keeps its s*."""
    if page.last_crawled_at == NEVER:
        # As long ago as can be: its value is what it is.
        return NEVER if crawl_value_of(page, 0.0, terms) >= guard * _CAUTION else math.inf
    if np.isnan(page.due_staleness):
        page.due_staleness = staleness_at(page, guard, terms)
    return _time_of_staleness(page, np.float64(page.due_staleness), terms)


@compiled
def _time_of_staleness(page: Any, staleness: float, terms: Terms) -> float:
    """When a page that was crawled reaches an s*, if nothing happens."""
    days: float = staleness
    if not terms.uniform:
        kappa = jump_of(objective_of(page, terms.objectives), np.float64(page.kappa))
        evidence = kappa * np.float64(page.signals) if page.signals > 0 else 0.0
        days = due_after_days_scalar(staleness, np.float64(page.alpha), evidence)
    time: float = page.last_crawled_at + days * SECONDS_PER_DAY
    return time


@compiled
def urgent_from(page: Any, attempt: Any) -> float:
    """From when on a page goes first, as somebody asks for it at once; infinite: nobody does."""
    if not attempt.urgent_at > NEVER:
        return math.inf
    earliest: float = max(attempt.urgent_at, attempt.deadline)
    if is_asked_anew(attempt):
        return earliest
    goes_first = has_claim(page.status, failures_of(page, attempt))
    return max(earliest, attempt.retry_at) if goes_first else math.inf


@compiled
def due_at(page: Any, attempts: Rows, guard: float, terms: Terms) -> float:
    """From when on a page's priority is `guard` or more; infinite: only an event can do that.

    The page's `due_staleness` is taken to be of this guard, or of a lower one, unless unset.
    """
    if page.status != ACTIVE and not is_looked_at(page):
        return math.inf
    at_once = math.inf
    ready: float = page.last_crawled_at + terms.least_interval
    has_tier = True
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        ready = max(ready, attempt.deadline, attempt.retry_at)
        has_tier = has_claim(page.status, failures_of(page, attempt))
        if tier_priority(page, URGENT) >= guard:
            at_once = urgent_from(page, attempt)
    if has_tier and page.last_crawled_at == NEVER:
        return min(ready, at_once) if tier_priority(page, NEW) >= guard else at_once
    due = math.inf
    if guard <= HIGHEST_VALUE:
        due = _time_of_value(page, guard, terms)
    if has_tier and page.max_age < np.inf and tier_priority(page, OVER_AGE) >= guard:
        over_age = page.last_crawled_at + np.float64(page.max_age)
        if terms.least_value > 0.0 and over_age < due:
            staleness = staleness_at(page, terms.least_value, terms)
            over_age = max(over_age, _time_of_staleness(page, staleness, terms))
        due = min(due, over_age)
    return min(max(due, ready), at_once)
