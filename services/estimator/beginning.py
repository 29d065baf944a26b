"""Pages that begin anew: those that were removed and are added again, and those that are erased."""

from typing import Any

import numpy as np

from shared.policy.compiled import compiled
from shared.rules.page_events import NO_DIGEST
from shared.store.class_numbers import NO_CLASS
from shared.store.history import Rings
from shared.store.page_status import ACTIVE, NEVER
from shared.store.source_times import NO_ENTRY, Ages, clear_entry


@compiled
def begin_anew(page: Any, rings: Rings, ages: Ages, row: int) -> None:
    """A page is added that was removed: it is a new one, as it is to the schedulers, which have
    forgotten it. What was counted and learned of it stays, and is announced again."""
    page.status = ACTIVE
    page.importance = 1.0
    page.page_class = NO_CLASS
    page.max_age_days = np.inf
    page.last_crawled_at = page.last_attempt_at = page.last_changed_at = NEVER
    page.last_signal_at = page.urgent_at = NEVER
    page.digest = NO_DIGEST
    page.signals = page.failures = page.misses = 0
    page.announced_change_rate = page.announced_evidence = np.nan
    page.announced_signal_rate = 0.0
    if page.several != NO_ENTRY:
        clear_entry(ages, page.several)
    rings.pending[row] = 0
    rings.multiplier[row] = 1.0


@compiled
def unlearn(page: Any, rings: Rings, row: int) -> None:
    """Nothing is known of a page any more but its URL, and since when."""
    page.unsignalled_change_rate = page.signal_evidence = np.nan
    page.signal_rate = 0.0
    page.signal_count = page.crawls = page.changes = 0
    rings.seen[row] = 0
    rings.interval_days[row] = 0.0
    rings.signals[row] = 0
    rings.changed[row] = 0
    rings.totals[row] = 0
    rings.evidence[row] = 0.0
    rings.posterior_shape[row] = 0.0
