"""What signals, outcomes and parameters do to the rows of pages.

The rules are those of `shared.rules.page_events`, which the estimator goes by, too.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import (
    NO_ATTEMPT,
    close_if_settled,
    last_attempt_of,
    open_attempt,
)
from services.scheduler.state.hosts import take_token
from services.scheduler.state.learned_hosts import (
    HostTables,
    fix_multiplier,
    note_first_signal,
    set_rate,
)
from services.scheduler.state.packing import set_crawled, update_steps, updated_steps_of
from services.scheduler.state.rows import NEVER, UNSET, Rows
from services.scheduler.state.signal_times import LastSignals, weight_after
from shared.policy.compiled import compiled
from shared.rules.page_events import (
    FAILED,
    NO_DIGEST,
    digest_after_crawl,
    forgets_failures,
    is_after_crawl,
    is_change,
    is_news,
    is_observation,
    retry_time,
    status_after_crawl,
    status_after_signal,
)
from shared.store.prefetch import AHEAD, prefetch

NO_REQUEST: Final = -1


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Crawl outcomes, one element each."""

    page_ids: NDArray[np.int64]
    crawled_at: NDArray[np.float64]
    results: NDArray[np.int8]
    """Kinds of `page_events`: all but `SIGNAL`."""
    requested_us: NDArray[np.int64]
    """Out of the request's id; NO_REQUEST where there is none."""
    digests: NDArray[np.uint32]
    """Part of the hash of the content's digest (`short_digests`); 0: none."""


class Requests(NamedTuple):
    """Crawl requests, one element each, in the order they were made."""

    page_ids: NDArray[np.int64]
    hosts: NDArray[np.int64]
    """Number of each host."""
    requested_at: NDArray[np.float64]
    requested_us: NDArray[np.int64]
    """The same as in their ids."""
    deadlines: NDArray[np.float64]
    """Until when they wait for an outcome."""


def short_digests(digests: NDArray[np.int64]) -> NDArray[np.uint32]:
    """As much of the hashes of digests as the rows have room for; 0 stays 0, nothing else is.

    Of 65,000 changes that only a digest tells, one is overlooked: the page's burst multiplier is
    then that of an unchanged page until its next crawl.
    """
    short = (digests & 0xFFFF).astype(np.uint32)
    none = np.uint32(NO_DIGEST)
    return np.where(digests == NO_DIGEST, none, np.maximum(short, none + np.uint32(1)))


@compiled
def apply_signals(
    pages: Rows,
    records: Rows,
    hosts: HostTables,
    rows: NDArray[np.int32],
    slots: NDArray[np.int8],
    observed_at: NDArray[np.float64],
    is_later: NDArray[np.bool_],
    delay: float,
) -> int:
    """Count signals; rows of -1 are left out.

    Args:
        pages: rows of the shard.
        records: of the same pages.
        hosts: what was learned of the hosts.
        rows: the page of each signal, in order of arrival.
        slots: of the source of each, at the host.
        observed_at: their times.
        is_later: which are later than all before of their page and source.
        delay: seconds after a crawl in which signals are about what it saw.

    Returns:
        how many counted.
    """
    counted = 0
    for index in range(rows.size):
        if not is_later[index]:
            continue
        page, record = pages[rows[index]], records[rows[index]]
        time = observed_at[index]
        if not is_after_crawl(time, page.last_crawled_at, delay):
            continue
        page.signals += hosts.weights[page.host, slots[index]]
        counted += 1
        if not page.gamma > 0.0:
            note_first_signal(page, record, hosts, time)
        page.status = status_after_signal(page.status)
    return counted


@compiled
def _note_attempt(attempts: Rows, page: Any, time: float) -> None:
    """A crawl at a time went well: earlier failures are forgotten."""
    if page.attempt != NO_ATTEMPT and forgets_failures(time, last_attempt_of(attempts, page)):
        attempt = attempts[page.attempt]
        attempt.last_attempt_at = time
        attempt.failures = 0
        attempt.retry_at = NEVER


@compiled
def _apply_crawl(
    page: Any,
    record: Any,
    attempts: Rows,
    hosts: HostTables,
    waiting: float,
    time: float,
    result: int,
    digest: int,
) -> None:
    observed = is_observation(result, page.last_crawled_at, record.digest)
    changed = observed and is_change(result, digest, record.digest)
    _note_attempt(attempts, page, time)
    days = set_crawled(page, record, time, changed)
    if observed:
        fix_multiplier(page, record, hosts, days)
    record.digest = digest_after_crawl(result, digest, record.digest)
    page.signals = waiting
    was_updated_since = updated_steps_of(record) > update_steps(time)
    page.status = status_after_crawl(page.status, result, was_updated_since)


@compiled
def _apply_failure(page: Any, attempts: Rows, time: float, retry_seconds: float) -> None:
    attempt = open_attempt(attempts, page)
    attempt.last_attempt_at = time
    attempt.failures = min(attempt.failures + 1, 1000)
    attempt.retry_at = retry_time(time, attempt.failures, retry_seconds)


@compiled
def _answer(page: Any, attempts: Rows, time: float, requested_us: int) -> None:
    """The request in flight is answered by an outcome with its id, or of a crawl made after it."""
    if page.attempt == NO_ATTEMPT:
        return
    attempt = attempts[page.attempt]
    if attempt.deadline > NEVER and (
        requested_us == attempt.requested_us or time * 1e6 + 1.0 >= attempt.requested_us
    ):
        attempt.deadline = NEVER


@compiled
def apply_outcomes(
    pages: Rows,
    records: Rows,
    attempts: Rows,
    hosts: HostTables,
    signals: LastSignals,
    rows: NDArray[np.int32],
    crawled_at: NDArray[np.float64],
    results: NDArray[np.int8],
    requested_us: NDArray[np.int64],
    digests: NDArray[np.uint32],
    delay: float,
    retry_seconds: float,
) -> int:
    """Take crawl outcomes; rows of -1 are left out.

    Args:
        pages: rows of the shard.
        records: of the same pages.
        attempts: with room for one more an outcome.
        hosts: what was learned of the hosts.
        signals: when the last ones of pages were.
        rows: the page of each outcome, in order of arrival.
        crawled_at: their times.
        results: kinds of `page_events`.
        requested_us: of the request that each answers, or NO_REQUEST.
        digests: of each, or 0.
        delay: see `apply_signals`.
        retry_seconds: wait after the first failure; it doubles with each, up to a day.

    Returns:
        how many were news.
    """
    news = 0
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
        _answer(page, attempts, time, requested_us[index])
        if results[index] == FAILED:
            if is_news(time, last_attempt_of(attempts, page)):
                _apply_failure(page, attempts, time, retry_seconds)
                news += 1
        elif is_news(time, page.last_crawled_at):
            result, digest = results[index], digests[index]
            waiting = 0.0
            if page.signals > 0:
                weights = hosts.weights[page.host]
                waiting = weight_after(signals, rows[index], time, delay, weights)
            _apply_crawl(page, record, attempts, hosts, waiting, time, result, digest)
            news += 1
        close_if_settled(attempts, page)
    return news


@compiled
def take_copy(page: Any, record: Any, attempts: Rows, time: float) -> None:
    """Somebody holds a copy of the page, which was crawled at a time: so it need not be yet."""
    if is_news(time, page.last_crawled_at):
        _note_attempt(attempts, page, time)
        set_crawled(page, record, time, False)
        close_if_settled(attempts, page)


@compiled
def apply_parameters(
    pages: Rows,
    records: Rows,
    hosts: HostTables,
    rows: NDArray[np.int32],
    alpha: NDArray[np.float64],
    kappa: NDArray[np.float64],
    gamma: NDArray[np.float64],
) -> None:
    """Set what was learned of pages; rows of -1 are left out. The last one of a page stands.

    Where α is NaN the page has no crawl record, and its host's α and κ̄ hold.
    """
    for index in range(rows.size):
        if rows[index] >= 0:
            page, record = pages[rows[index]], records[rows[index]]
            set_rate(page, record, hosts, alpha[index])
            page.due_staleness = UNSET
            page.kappa = hosts.kappa[page.host] if np.isnan(kappa[index]) else kappa[index]
            # A signal that the estimator had not seen when it wrote keeps its rate.
            if gamma[index] > 0.0 or not page.signals > 0.0:
                page.gamma = gamma[index]


@compiled
def restore_requests(
    pages: Rows,
    attempts: Rows,
    hosts: Rows,
    rows: NDArray[np.int32],
    host_numbers: NDArray[np.int64],
    requested_at: NDArray[np.float64],
    requested_us: NDArray[np.int64],
    deadlines: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Requests that were made before the shard was loaded may be in flight (see `Requests`).

    Args:
        pages: rows of the shard.
        attempts: with room for one more a request.
        hosts: rows of the hosts; each request has taken a token.
        rows: the page of each request; -1: it is not there.
        host_numbers: its host.
        requested_at: when it was made.
        requested_us: the same as in its id.
        deadlines: until when it waits.

    Returns:
        which are not answered yet.
    """
    waiting = np.zeros(rows.size, np.bool_)
    for index in range(rows.size):
        take_token(hosts[host_numbers[index]], requested_at[index])
        if rows[index] < 0:
            continue
        page = pages[rows[index]]
        if last_attempt_of(attempts, page) < requested_at[index]:
            attempt = open_attempt(attempts, page)
            attempt.deadline = deadlines[index]
            attempt.requested_us = requested_us[index]
            waiting[index] = True
    return waiting
