"""What the events come to, by the rules of pages written down once more and as short as can be.

It shares no code with the estimator. It knows the world of the simulation: the outcomes of a page
stand on the topic in rising order of their times, but for repetitions; no page is ever not found,
but some lead elsewhere for a while, or are forbidden.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.store.page_status import ACTIVE, DISALLOWED, DUPLICATE, GONE, REDIRECTED, REMOVED
from shared.units import SECONDS_PER_DAY

AWAY: Final[Mapping[str | None, int]] = {
    "redirected": REDIRECTED,
    "canonical": DUPLICATE,
    "disallowed": DISALLOWED,
}
"""Result → status."""


@dataclass(slots=True)
class PageRecord:
    """What should be known of a page."""

    url: str
    added_at: float
    importance: float = 1.0
    page_class: str = ""
    """Empty: none."""
    is_removed: bool = False
    is_erased: bool = False
    updated_at: float = -math.inf
    crawls: int = 0
    changes: int = 0
    failures: int = 0
    misses: int = 0
    found: int = ACTIVE
    """Status that the last attempt gave the page."""
    last_crawled_at: float = -math.inf
    last_attempt_at: float = -math.inf
    least_signals: int = 0
    last_signal_at: dict[str, float] = field(default_factory=dict)
    """By source."""
    signal_times: set[tuple[str, float]] = field(default_factory=set)
    """Each with its source."""
    observations: list[tuple[float, float, bool]] = field(default_factory=list)
    """Time of the crawl, days since the one before, changed."""

    @property
    def statuses(self) -> set[int]:
        """Those that the page may have: who is away comes back with a newer signal, or update; one
        that came before the page was known may have counted."""
        if self.is_removed:
            return {REMOVED}
        sure = max(self.updated_at, *self.last_signal_at.values(), -math.inf)
        maybe = max(self.updated_at, *(at for _, at in self.signal_times), -math.inf)
        named = [at > self.last_attempt_at for at in (sure, maybe)]
        return {ACTIVE if is_named else self.found for is_named in named}

    @property
    def most_signals(self) -> int:
        """As many if each batch had them in order of time."""
        return len(self.signal_times)


def page_records(
    updates: Iterable[PageUpdate],
    signals: Iterable[PageSignal],
    outcomes: Iterable[CrawlOutcome],
    early: Collection[PageSignal] = (),
) -> dict[str, PageRecord]:
    """URL → what should be known, from each topic's messages in order of offset; of pages that are
    erased nothing is.

    Args:
        updates: of pages.
        signals: about pages.
        outcomes: of crawls.
        early: those of the signals that could be read before their pages' updates could: such a
            page was not known yet, or it was.
    """
    pages: dict[str, PageRecord] = {}
    for update in updates:
        at = update.updated_at or 0.0
        if update.op == "upsert" and update.url not in pages:
            pages[update.url] = PageRecord(update.url, at)
        page = pages.get(update.url)
        if page is None or at < page.updated_at:
            continue
        page.updated_at = at
        page.is_removed, page.is_erased = update.op == "remove", update.for_good
        if update.importance is not None and update.op == "upsert":
            page.importance = update.importance
        if isinstance(update.page_class, str | None) and update.op == "upsert":
            page.page_class = update.page_class or ""
    for signal in signals:
        page = pages.get(signal.url)
        if page is not None:
            at = signal.observed_at
            page.signal_times.add((signal.source, at))
            if signal not in early and at > page.last_signal_at.get(signal.source, -math.inf):
                page.last_signal_at[signal.source] = at
                page.least_signals += 1
    for outcome in outcomes:
        page = pages.get(outcome.url)
        if page is not None:
            _apply(page, outcome)
    return {url: page for url, page in pages.items() if not page.is_erased}


def _apply(page: PageRecord, outcome: CrawlOutcome) -> None:
    at = outcome.crawled_at
    if outcome.result == "failed" or outcome.result in AWAY:
        if at > page.last_attempt_at:
            _note_miss(page, at, outcome.result)
        return
    if at <= page.last_crawled_at:
        return
    if page.crawls:
        is_changed = outcome.result == "changed"
        page.changes += is_changed
        page.observations.append((at, (at - page.last_crawled_at) / SECONDS_PER_DAY, is_changed))
    page.crawls += 1
    page.last_crawled_at = at
    if at >= page.last_attempt_at:
        page.last_attempt_at = at
        page.failures = page.misses = 0
        page.found = ACTIVE


def _note_miss(page: PageRecord, at: float, result: str | None) -> None:
    page.last_attempt_at = at
    page.failures += 1
    if result in AWAY:
        page.failures = page.misses = max(page.misses + 1, 3)
    page.found = AWAY.get(result, GONE) if page.misses else ACTIVE
