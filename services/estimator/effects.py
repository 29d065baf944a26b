"""What page updates, signals and outcomes do to the state of pages: compiled, in order of time.

Nothing here knows where the events came from. The rules are those of `shared.rules.page_events`,
which the scheduler goes by, too.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.estimator.beginning import begin_anew, unlearn
from services.estimator.columns import (
    ERASE,
    UPSERT,
    EventColumns,
    HostTables,
    UpdateColumns,
    Verdicts,
)
from services.estimator.predicting import mean_of_host, note_prediction
from services.estimator.waiting import (
    keep_waiting,
    last_of_source,
    late_slots,
    note_signal,
    take_late,
)
from services.estimator.watching import watch
from shared.policy.compiled import compiled
from shared.policy.estimation.bursts import (
    age_bin,
    burst_multiplier,
    trusts_bursts,
    update_bursts,
)
from shared.policy.estimation.page_factors import activity_bin
from shared.policy.estimation.quiet_pages import NEVER_CHANGED, count_quiet
from shared.rules.page_events import (
    NO_DIGEST,
    SIGNAL,
    brings_back,
    digest_after_crawl,
    failures_after,
    forgets_failures,
    is_after_crawl,
    is_change,
    is_failure,
    is_news,
    is_observation,
    misses_after,
    status_after_crawl,
    status_after_failure,
)
from shared.store.class_numbers import AS_IT_IS
from shared.store.history import DEPTH, MOST_SIGNALS, Rings, ask_for
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.store.prefetch import AHEAD, prefetch
from shared.store.source_times import Ages, SourceTimes
from shared.units import SECONDS_PER_DAY

UNKNOWN_PAGE: Final = 0
"""Verdict: the page is not known, nothing was done."""

APPLIED: Final = 1
"""Verdict: the state changed."""

OBSERVED: Final = 2
"""Verdict: the state changed, and there is a new crawl record to learn from."""

STALE: Final = 3
"""Verdict: a duplicate, or older than what is known; nothing was done."""

NOT_COUNTED: Final = 4
"""Verdict: a signal about what a crawl saw already: it does not wait, its time and the total were
noted."""

RETURNED: Final = 5
"""Verdict: an update adds a page again that was removed; see `begin_anew`."""


def apply_updates(
    pages: NDArray[Any],
    rings: Rings,
    by_source: SourceTimes,
    updates: UpdateColumns,
    signal_delay_seconds: float,
) -> NDArray[np.uint8]:
    """Apply page updates (see `apply_events`); a verdict for each."""
    verdicts = np.zeros(updates.rows.size, np.uint8)
    _apply_updates(pages, rings, by_source.ages, updates, signal_delay_seconds, verdicts)
    return verdicts


def apply_events(
    pages: NDArray[Any],
    rings: Rings,
    by_source: SourceTimes,
    hosts: HostTables,
    events: EventColumns,
    signal_delay_seconds: float,
) -> Verdicts:
    """Apply signals and outcomes to the records `pages`, their `rings`, the times of their signals
    `by_source`, and their hosts."""
    count = events.rows.size
    results = Verdicts(
        np.zeros(count, np.uint8),
        np.zeros(count),
        np.zeros(count, np.int32),
        np.zeros(count, np.bool_),
        np.zeros(count, np.float32),
        np.zeros(count, np.float32),
        np.zeros(count, np.int16),
    )
    ages, used = by_source.reserve(count), by_source.used
    by_source.used += _apply_events(
        pages, rings, ages, used, hosts, events, signal_delay_seconds, results
    )
    return results


@compiled
def _apply_updates(
    pages: NDArray[Any],
    rings: Rings,
    ages: Ages,
    updates: UpdateColumns,
    signal_delay_seconds: float,
    verdicts: NDArray[np.uint8],
) -> None:
    for event in range(updates.rows.size):
        if updates.rows[event] < 0:
            verdicts[event] = UNKNOWN_PAGE
            continue
        row, time = updates.rows[event], updates.times[event]
        page = pages[row]
        if time < page.updated_at:
            verdicts[event] = STALE
            continue
        verdicts[event] = APPLIED
        page.updated_at = time
        if updates.operations[event] != UPSERT:
            if updates.operations[event] == ERASE:
                begin_anew(page, rings, ages, row)
                unlearn(page, rings, row)
            page.status = REMOVED
            continue
        if page.status == REMOVED:
            begin_anew(page, rings, ages, row)
            verdicts[event] = RETURNED
        if brings_back(page.status, time, page.last_attempt_at):
            page.status = ACTIVE
        if not np.isnan(updates.importance[event]):
            page.importance = updates.importance[event]
        if not np.isnan(updates.max_age_days[event]):
            page.max_age_days = updates.max_age_days[event]
        if is_news(updates.crawled_at[event], page.last_crawled_at):
            _take_copy(page, rings, ages, row, updates.crawled_at[event], signal_delay_seconds)
        if updates.urgent[event]:
            page.urgent_at = time
        if updates.page_class[event] != AS_IT_IS:
            page.page_class = updates.page_class[event]


@compiled
def _take_copy(
    page: Any, rings: Rings, ages: Ages, row: int, time: float, signal_delay_seconds: float
) -> None:
    """Somebody holds a copy of a page that was crawled at a time: signals before it wait for
    nothing, and there is no digest that the next crawl could be compared with."""
    if page.signals > 0:
        kept = late_slots(page, rings, ages, row, time, signal_delay_seconds)
        keep_waiting(page, rings, row, kept)
    page.last_crawled_at = time
    page.digest = NO_DIGEST
    _note_success(page, time)


@compiled
def _apply_events(
    pages: NDArray[Any],
    rings: Rings,
    ages: Ages,
    free_entry: int,
    hosts: HostTables,
    events: EventColumns,
    signal_delay_seconds: float,
    results: Verdicts,
) -> int:
    """Apply events; how many entries of `ages` were taken, from `free_entry` on."""
    taken = 0
    for event in range(events.rows.size):
        if event + AHEAD < events.rows.size and events.rows[event + AHEAD] >= 0:
            prefetch(pages, events.rows[event + AHEAD])
            ask_for(rings, events.rows[event + AHEAD])
        row, time, kind = events.rows[event], events.times[event], events.kinds[event]
        if row < 0:
            results.verdicts[event] = UNKNOWN_PAGE
        elif kind == SIGNAL:
            slot = events.slots[event]
            last = last_of_source(pages[row], rings, ages, row, slot)
            verdict = _signal(pages[row], time, last, signal_delay_seconds)
            results.verdicts[event] = verdict
            if verdict != STALE:
                taken += note_signal(pages[row], rings, ages, row, slot, time, free_entry + taken)
                rings.totals[row, slot] += 1
                hosts.signals[pages[row].host, slot] += 1.0
                _note_activity(pages[row], hosts)
            if verdict == APPLIED and rings.pending[row, slot] < MOST_SIGNALS:
                rings.pending[row, slot] += 1
        elif is_failure(kind):
            results.verdicts[event] = _failure(pages[row], time, kind)
        else:
            _apply_crawl(pages, rings, ages, hosts, events, event, signal_delay_seconds, results)
    return taken


@compiled
def _apply_crawl(
    pages: NDArray[Any],
    rings: Rings,
    ages: Ages,
    hosts: HostTables,
    events: EventColumns,
    event: int,
    signal_delay_seconds: float,
    results: Verdicts,
) -> None:
    row, time = events.rows[event], events.times[event]
    page = pages[row]
    age_before = _age(page)
    verdict, days, changed = _crawl(page, time, events.kinds[event], events.digests[event])
    results.verdicts[event] = verdict
    if verdict == STALE:
        return
    waiting = page.signals
    kept = 0
    if waiting > 0:
        take_late(page, rings, ages, row, time)
        kept = late_slots(page, rings, ages, row, time, signal_delay_seconds)
    results.interval_days[event] = days
    results.signals[event] = page.signals
    results.changed[event] = changed
    pending = rings.pending[row]
    if verdict == OBSERVED:
        note_prediction(page, rings, hosts, row, age_before, time, days, event, results)
        slot = rings.seen[row] % DEPTH
        rings.interval_days[row, slot] = days * rings.multiplier[row]
        rings.signals[row, slot] = pending
        rings.changed[row, slot] = changed
        rings.seen[row] += 1
        _note_burst(page, rings, hosts, row, age_before, days, page.signals, changed)
    if waiting > 0:
        keep_waiting(page, rings, row, kept)


@compiled
def _note_activity(page: Any, hosts: HostTables) -> None:
    """A page has had one more signal: the factor of its rate may be another."""
    before, now = activity_bin(page.signal_count - 1), activity_bin(page.signal_count)
    if now != before:
        of_host = hosts.activity[page.host]
        page.factor *= of_host[now] / of_host[before]


@compiled
def _age(page: Any) -> int:
    """The bin of a page's age: from its last change to its last crawl."""
    return age_bin((page.last_crawled_at - page.last_changed_at) / SECONDS_PER_DAY)


@compiled
def _note_burst(
    page: Any,
    rings: Rings,
    hosts: HostTables,
    row: int,
    age_before: int,
    days: float,
    signals: int,
    changed: bool,
) -> None:
    """Take a crawl record into the host's tables, and fix the page's next multiplier."""
    if signals == 0:
        rate = page.unsignalled_change_rate
        if np.isnan(rate):
            rate = mean_of_host(page, hosts)
        if age_before == NEVER_CHANGED:
            count_quiet(hosts.records[page.host], rate * rings.multiplier[row], days, changed)
        update_bursts(
            hosts.expected_changes,
            hosts.predicted_changes,
            page.host,
            age_before,
            rate,
            days,
            changed,
        )
    age = _age(page)
    rings.multiplier[row] = 1.0
    if trusts_bursts(hosts.signals[page.host], hosts.precision[page.host]):
        rings.multiplier[row] = burst_multiplier(
            hosts.expected_changes[page.host, age], hosts.predicted_changes[page.host, age]
        )


@compiled
def _signal(page: Any, time: float, last: float, signal_delay_seconds: float) -> int:
    """Count a signal, whose source sent its last one at a time."""
    if not is_news(time, last):
        return STALE
    watch(page, time, 1.0)
    page.signal_count += 1
    if brings_back(page.status, time, page.last_attempt_at):
        page.status = ACTIVE
    if not is_after_crawl(time, page.last_crawled_at, signal_delay_seconds):
        return NOT_COUNTED
    page.signals += 1
    return APPLIED


@compiled
def _failure(page: Any, time: float, kind: int) -> int:
    if not is_news(time, page.last_attempt_at):
        return STALE
    watch(page, time, 0.0)
    page.last_attempt_at = time
    page.misses = misses_after(kind, page.misses)
    page.failures = failures_after(kind, page.failures, page.misses)
    was_named_since = max(page.updated_at, page.last_signal_at) > time
    page.status = status_after_failure(kind, page.status, page.misses, was_named_since)
    return APPLIED


@compiled
def _note_success(page: Any, time: float) -> None:
    """A crawl went well: failures are over if it is the latest attempt."""
    is_latest = forgets_failures(time, page.last_attempt_at)
    if is_latest:
        watch(page, time, 0.0)
        page.last_attempt_at = time
        page.failures = page.misses = 0
    page.status = status_after_crawl(page.status, is_latest)


@compiled
def _crawl(page: Any, time: float, kind: int, digest: int) -> tuple[int, float, bool]:
    """A crawl that got the page: (verdict, interval in days, changed)."""
    if not is_news(time, page.last_crawled_at):
        return STALE, 0.0, False
    has_before = page.last_crawled_at != NEVER
    observed = is_observation(kind, page.last_crawled_at, page.digest)
    changed = observed and is_change(kind, digest, page.digest)
    interval = (time - page.last_crawled_at) / SECONDS_PER_DAY if has_before else 0.0
    page.last_crawled_at = time
    page.crawls += 1
    _note_success(page, time)
    page.digest = digest_after_crawl(kind, digest, page.digest)
    if changed:
        page.last_changed_at = time
        page.changes += 1
    return (OBSERVED if observed else APPLIED), interval, changed
