"""What the outcomes of crawls do to the rows of pages.

The rules are those of `shared.rules.page_events`, which the estimator goes by, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import (
    answer_request,
    close_if_settled,
    last_attempt_of,
    note_retry,
    note_success,
    open_attempt,
    renew_retry,
)
from services.scheduler.state.batches import (
    Batches,
    Waiting,
    learn_of_batch,
    leave_batch,
    renew_pages,
)
from services.scheduler.state.learned_hosts import CrawlTables, HostTables, fix_multiplier
from services.scheduler.state.packing import set_crawled, update_steps, updated_steps_of
from services.scheduler.state.rows import Rows
from services.scheduler.state.signal_times import LastSignals, last_signal_at, weight_after
from shared.policy.compiled import compiled
from shared.policy.kernels.copying import copy_values
from shared.rules.page_events import (
    NO_DIGEST,
    digest_after_crawl,
    failures_after,
    is_change,
    is_failure,
    is_news,
    is_observation,
    misses_after,
    status_after_failure,
)
from shared.store.growing_table import find_row
from shared.store.prefetch import AHEAD, prefetch
from shared.store.source_times import Ages
from shared.units import SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Crawl outcomes, one element each."""

    page_ids: NDArray[np.int64]
    crawled_at: NDArray[np.float64]
    results: NDArray[np.int8]
    """Kinds of `page_events`: all but `SIGNAL`."""
    requested_us: NDArray[np.int64]
    """Out of the request's id; `request_ids.NO_REQUEST` where there is none."""
    digests: NDArray[np.uint32]
    """Part of the hash of the content's digest (`short_digests`); 0: none."""


def short_digests(digests: NDArray[np.int64]) -> NDArray[np.uint32]:
    """As much of the hashes of digests as the rows have room for; 0 stays 0, nothing else is.

    Of 65,000 changes that only a digest tells, one is overlooked: the page's burst multiplier is
    then that of an unchanged page until its next crawl.
    """
    return np.asarray(np.maximum(digests & 0xFFFF, digests != NO_DIGEST), np.uint32)


@compiled
def _apply_crawl(
    page: Any,
    record: Any,
    attempts: Rows,
    hosts: CrawlTables,
    batches: Batches,
    place: int,
    waiting: float,
    time: float,
    result: int,
    digest: int,
    retry_seconds: float,
) -> None:
    observed = is_observation(result, page.last_crawled_at, record.digest)
    changed = observed and is_change(result, digest, record.digest)
    note_success(attempts, page, time)
    if place >= 0 and batches.waiting.batches[place] >= 0:
        if observed and not waiting > 0.0:
            since = (time - page.last_crawled_at) / SECONDS_PER_DAY
            learn_of_batch(page, batches, place, hosts.weights[page.host], since, changed)
        leave_batch(batches, place)
    days = set_crawled(page, record, time, changed)
    if observed:
        fix_multiplier(page, record, hosts, days)
    record.digest = digest_after_crawl(result, digest, record.digest)
    page.signals = waiting
    renew_retry(attempts, page, retry_seconds)


@compiled
def take_copy(
    page: Any,
    record: Any,
    attempts: Rows,
    weights: NDArray[np.float32],
    signals: LastSignals,
    batches: Batches,
    row: int,
    time: float,
    delay: float,
    retry_seconds: float,
) -> None:
    """Somebody holds a copy of the page, which was crawled at a time: so it need not be yet.

    Signals before it wait for nothing, and say nothing of their batch; and there is no digest that
    the next crawl could be compared with.

    Args:
        page: its row in the shard.
        record: of the same page.
        attempts: of the pages that have any.
        weights: of the signals of its host, by source slot.
        signals: when the last ones of pages were.
        batches: of signals.
        row: number of the page's row.
        time: of the crawl.
        delay: see `apply_signals`.
        retry_seconds: wait after the first failure (see `page_events.retry_wait`).
    """
    if not is_news(time, page.last_crawled_at):
        return
    if page.signals > 0:
        place = find_row(signals.places, signals.leaving, signals.rows, row)
        if place >= 0:
            leave_batch(batches, place)
        page.signals = weight_after(signals, row, time, delay, weights)
    note_success(attempts, page, time)
    set_crawled(page, record, time, False)
    record.digest = NO_DIGEST
    renew_retry(attempts, page, retry_seconds)
    close_if_settled(attempts, page)


@compiled
def _apply_failure(
    page: Any,
    record: Any,
    attempts: Rows,
    signals: LastSignals,
    row: int,
    time: float,
    result: int,
    retry_seconds: float,
) -> None:
    attempt = open_attempt(attempts, page)
    attempt.last_attempt_at = time
    attempt.misses = misses_after(result, attempt.misses)
    attempt.failures = failures_after(result, attempt.failures, attempt.misses)
    was_named_since = False
    if attempt.misses > 0:  # else it does not matter, and the look-up is spared
        was_named_since = updated_steps_of(record) > update_steps(time)
        was_named_since = was_named_since or last_signal_at(signals, row) > time
    page.status = status_after_failure(result, page.status, attempt.misses, was_named_since)
    note_retry(page, attempt, retry_seconds)


@compiled
def _apply(
    pages: Rows,
    records: Rows,
    attempts: Rows,
    hosts: CrawlTables,
    signals: LastSignals,
    batches: Batches,
    rows: NDArray[np.int32],
    crawled_at: NDArray[np.float64],
    results: NDArray[np.int8],
    requested_us: NDArray[np.int64],
    digests: NDArray[np.uint32],
    delay: float,
    retry_seconds: float,
) -> int:
    answered = 0
    for index in range(rows.size):
        if index + 2 * AHEAD < rows.size:
            prefetch(pages, rows[index + 2 * AHEAD])
            prefetch(records, rows[index + 2 * AHEAD])
        if index + AHEAD < rows.size and rows[index + AHEAD] >= 0:
            page = pages[rows[index + AHEAD]]
            prefetch(attempts, page.attempt)
            prefetch(hosts.multipliers, page.host)
        if rows[index] < 0:
            continue
        page, record = pages[rows[index]], records[rows[index]]
        time = crawled_at[index]
        if answer_request(attempts, page, time, requested_us[index], retry_seconds):
            answered += 1
        if is_failure(results[index]):
            if is_news(time, last_attempt_of(attempts, page)):
                _apply_failure(
                    page,
                    record,
                    attempts,
                    signals,
                    rows[index],
                    time,
                    results[index],
                    retry_seconds,
                )
        elif is_news(time, page.last_crawled_at):
            result, digest = results[index], digests[index]
            waiting, place = 0.0, -1
            if page.signals > 0:
                weights = hosts.weights[page.host]
                waiting = weight_after(signals, rows[index], time, delay, weights)
                place = find_row(signals.places, signals.leaving, signals.rows, rows[index])
            _apply_crawl(
                page,
                record,
                attempts,
                hosts,
                batches,
                place,
                waiting,
                time,
                result,
                digest,
                retry_seconds,
            )
        close_if_settled(attempts, page)
    return answered


def apply_outcomes(
    pages: Rows,
    records: Rows,
    attempts: Rows,
    hosts: HostTables,
    signals: LastSignals,
    batches: Batches,
    rows: NDArray[np.int32],
    outcomes: Outcomes,
    delay: float,
    retry_seconds: float,
) -> tuple[int, NDArray[np.int32]]:
    """Take crawl outcomes; rows of -1 are left out.

    Args:
        pages: rows of the shard.
        records: of the same pages.
        attempts: with room for one more an outcome.
        hosts: what was learned of the hosts.
        signals: when the last ones of pages were.
        batches: of signals.
        rows: the page of each outcome, in order of arrival.
        outcomes: the outcomes.
        delay: see `apply_signals`.
        retry_seconds: wait after the first failure (see `page_events.retry_wait`).

    Returns:
        how many answered a request; rows of the pages that are worth something else now: also of
        those whose signals are of batches of which more is known.
    """
    # The arrays by name: there are few outcomes at a time, and to pass tuples costs more.
    return _apply_by_name(
        pages,
        records,
        attempts,
        hosts.multipliers,
        hosts.weights,
        *signals,
        *batches[:-1],
        *batches.waiting,
        rows,
        outcomes.crawled_at,
        outcomes.results,
        outcomes.requested_us,
        outcomes.digests,
        delay,
        retry_seconds,
    )


@compiled
def _apply_by_name(
    pages: Rows,
    records: Rows,
    attempts: Rows,
    multipliers: NDArray[np.float64],
    weights: NDArray[np.float32],
    signalled_rows: NDArray[np.int32],
    words: NDArray[np.int64],
    places: NDArray[np.int32],
    leaving: NDArray[np.int32],
    ages: Ages,
    batch_rows: NDArray[Any],
    joinable: NDArray[np.int32],
    free: NDArray[np.int32],
    due: NDArray[np.int32],
    counts: NDArray[np.int64],
    of_batches: NDArray[np.int32],
    earlier: NDArray[np.float32],
    of_batch: NDArray[np.float32],
    following: NDArray[np.int32],
    preceding: NDArray[np.int32],
    rows: NDArray[np.int32],
    crawled_at: NDArray[np.float64],
    results: NDArray[np.int8],
    requested_us: NDArray[np.int64],
    digests: NDArray[np.uint32],
    delay: float,
    retry_seconds: float,
) -> tuple[int, NDArray[np.int32]]:
    waiting = Waiting(of_batches, earlier, of_batch, following, preceding)
    batches = Batches(batch_rows, joinable, free, due, counts, waiting)
    answered = _apply(
        pages,
        records,
        attempts,
        CrawlTables(multipliers, weights),
        LastSignals(signalled_rows, words, places, leaving, ages),
        batches,
        rows,
        crawled_at,
        results,
        requested_us,
        digests,
        delay,
        retry_seconds,
    )
    renewed = renew_pages(pages, signalled_rows, batches, weights)
    moved = np.empty(rows.size + renewed.size, np.int32)
    count = 0
    for row in rows:
        moved[count] = row
        count += row >= 0
    copy_values(renewed, moved[count:])
    return answered, moved[: count + renewed.size]
