"""What signals, parameters and requests do to the rows of pages; for outcomes see `crawls`.

The rules are those of `shared.rules.page_events`, which the estimator goes by, too.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import (
    begin_request,
    is_since,
    last_attempt_of,
    renew_retry,
)
from services.scheduler.state.batches import Batches, Waiting, join_batch
from services.scheduler.state.learned_hosts import HostTables, note_first_signal, set_rate
from services.scheduler.state.rows import UNSET, Rows
from services.scheduler.state.signal_times import LastSignals
from shared.policy.compiled import compiled
from shared.policy.estimation.page_factors import ACTIVITY_BINS
from shared.rules.page_events import brings_back, is_after_crawl
from shared.store.growing_table import find_row
from shared.store.page_status import ACTIVE
from shared.store.prefetch import AHEAD, prefetch

_MOST_ACTIVE: Final = ACTIVITY_BINS - 1


class Requests(NamedTuple):
    """Crawl requests, one element each, in the order they were made."""

    page_ids: NDArray[np.int64]
    hosts: NDArray[np.int64]
    """Number of each host."""
    requested_us: NDArray[np.int64]
    """When each was made, as in their ids."""
    deadlines: NDArray[np.float64]
    """Until when they wait for an outcome."""


def apply_signals(
    pages: Rows,
    records: Rows,
    attempts: Rows,
    hosts: HostTables,
    rows: NDArray[np.int32],
    slots: NDArray[np.int8],
    observed_at: NDArray[np.float64],
    is_later: NDArray[np.bool_],
    last: LastSignals,
    batches: Batches,
    delay: float,
    retry_seconds: float,
) -> int:
    """Count signals; rows of -1 are left out.

    Args:
        pages: rows of the shard.
        records: of the same pages.
        attempts: of those that have any.
        hosts: what was learned of the hosts.
        rows: the page of each signal, in order of arrival.
        slots: of the source of each, at the host.
        observed_at: their times.
        is_later: which are later than all before of their page and source.
        last: where pages with signals have their places; these signals are noted there.
        batches: of signals.
        delay: seconds after a crawl in which signals are about what it saw.
        retry_seconds: wait after the first failure (see `page_events.retry_wait`).

    Returns:
        how many counted.
    """
    # The arrays by name: there are few signals at a time, and to pass tuples costs more.
    return int(
        _apply_signals(
            pages,
            records,
            attempts,
            hosts.kappa,
            hosts.weights,
            last.rows,
            last.places,
            last.leaving,
            *batches[:-1],
            *batches.waiting,
            rows,
            slots,
            observed_at,
            is_later,
            delay,
            retry_seconds,
        )
    )


@compiled
def _apply_signals(
    pages: Rows,
    records: Rows,
    attempts: Rows,
    kappa: NDArray[np.float32],
    weights: NDArray[np.float32],
    signalled_rows: NDArray[np.int32],
    places: NDArray[np.int32],
    leaving: NDArray[np.int32],
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
    slots: NDArray[np.int8],
    observed_at: NDArray[np.float64],
    is_later: NDArray[np.bool_],
    delay: float,
    retry_seconds: float,
) -> int:
    waiting = Waiting(of_batches, earlier, of_batch, following, preceding)
    batches = Batches(batch_rows, joinable, free, due, counts, waiting)
    counted = 0
    for index in range(rows.size):
        if index + AHEAD < rows.size:
            prefetch(records, rows[index + AHEAD])
        if not is_later[index]:
            continue
        page, record = pages[rows[index]], records[rows[index]]
        time = observed_at[index]
        if page.status != ACTIVE and brings_back(
            page.status, time, last_attempt_of(attempts, page)
        ):
            bring_back(attempts, page, retry_seconds)
        if not is_after_crawl(time, page.last_crawled_at, delay):
            continue
        if not page.gamma > 0.0:
            note_first_signal(page, record, kappa, time)
        place = find_row(places, leaving, signalled_rows, rows[index])
        slot, directory = slots[index], record.directory
        join_batch(page, directory, batches, place, slot, weights[page.host, slot], time)
        counted += 1
    return counted


@compiled
def bring_back(attempts: Rows, page: Any, retry_seconds: float) -> None:
    """A page that was gone is crawled like any other again."""
    page.status = ACTIVE
    renew_retry(attempts, page, retry_seconds)


@compiled
def apply_parameters(
    pages: Rows,
    records: Rows,
    hosts: HostTables,
    rows: NDArray[np.int32],
    alpha: NDArray[np.float64],
    kappa: NDArray[np.float64],
    gamma: NDArray[np.float64],
    activity: NDArray[np.uint8],
) -> None:
    """Set what was learned of pages; rows of -1 are left out. The last one of a page stands.

    Where α is NaN the page has no crawl record, and its host's α and κ̄ hold.
    """
    for index in range(rows.size):
        if rows[index] >= 0:
            page, record = pages[rows[index]], records[rows[index]]
            record.activity = min(activity[index], _MOST_ACTIVE)
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
    rows: NDArray[np.int32],
    requested_us: NDArray[np.int64],
    deadlines: NDArray[np.float64],
    retry_seconds: float,
) -> NDArray[np.bool_]:
    """Requests that were made before the shard was loaded may be in flight (see `Requests`).

    Args:
        pages: rows of the shard.
        attempts: with room for one more a request.
        rows: the page of each request; -1: it is not there.
        requested_us: when it was made, as in its id.
        deadlines: until when it waits.
        retry_seconds: wait after the first failure, which one that nobody answers is.

    Returns:
        which are not answered yet.
    """
    waiting = np.zeros(rows.size, np.bool_)
    for index in range(rows.size):
        if rows[index] < 0:
            continue
        page = pages[rows[index]]
        if not is_since(last_attempt_of(attempts, page), requested_us[index]):
            begin_request(attempts, page, deadlines[index], requested_us[index], retry_seconds)
            waiting[index] = True
    return waiting
