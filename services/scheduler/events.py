"""What signals, outcomes and parameters do to the rows of pages.

Events may come twice and out of order: each carries its time, an older one never undoes a newer
one, and one that was applied changes nothing. The estimator goes by the same rules.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.pages import ACTIVE, GONE, NEVER, Rows
from shared.policy.compiled import compiled

FOUND: Final = 0
"""Result of a crawl that got the page."""

FAILED: Final = 1
MISSING: Final = 2
"""Result of a crawl that was told that the page is gone."""

NO_REQUEST: Final = -1

LONGEST_RETRY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Crawl outcomes, one element each."""

    page_ids: NDArray[np.int64]
    crawled_at: NDArray[np.float64]
    results: NDArray[np.int8]
    """FOUND, FAILED or MISSING."""
    requested_us: NDArray[np.int64]
    """Out of the request's id; NO_REQUEST where there is none."""


@compiled
def apply_signals(
    pages: Rows, rows: NDArray[np.int32], observed_at: NDArray[np.float64], delay: float
) -> int:
    """Count signals; rows of -1 are left out.

    Args:
        pages: rows of the shard.
        rows: the page of each signal, in order of arrival.
        observed_at: their times.
        delay: seconds after a crawl in which signals are about what it saw.

    Returns:
        how many counted.
    """
    counted = 0
    for index in range(rows.size):
        if rows[index] < 0:
            continue
        page = pages[rows[index]]
        time = observed_at[index]
        if time <= page.last_signal_at:
            continue
        page.last_signal_at = time
        if time <= page.last_crawled_at + delay:
            continue
        page.signals += 1
        counted += 1
        if page.status == GONE:
            page.status = ACTIVE
    return counted


@compiled
def _apply_crawl(page: Any, time: float, missing: bool, delay: float) -> None:
    page.last_crawled_at = time
    if time >= page.last_attempt_at:
        page.last_attempt_at = time
        page.failures = 0
        page.retry_at = NEVER
    # Signals that came after this crawl, but before the news of it: only the last one is known.
    page.signals = 1 if page.signals > 0 and page.last_signal_at > time + delay else 0
    if not missing:
        page.status = ACTIVE
    elif time >= page.updated_at:
        page.status = GONE


@compiled
def _apply_failure(page: Any, time: float, retry_seconds: float) -> None:
    page.last_attempt_at = time
    page.failures = min(page.failures + 1, 1000)
    wait = retry_seconds * 2.0 ** min(page.failures - 1.0, 60.0)
    page.retry_at = time + min(wait, LONGEST_RETRY_SECONDS)


@compiled
def apply_outcomes(
    pages: Rows,
    rows: NDArray[np.int32],
    crawled_at: NDArray[np.float64],
    results: NDArray[np.int8],
    requested_us: NDArray[np.int64],
    delay: float,
    retry_seconds: float,
) -> int:
    """Take crawl outcomes; rows of -1 are left out.

    A request is answered by an outcome with its id, or of a crawl that was made after it.

    Args:
        pages: rows of the shard.
        rows: the page of each outcome, in order of arrival.
        crawled_at: their times.
        results: FOUND, FAILED or MISSING.
        requested_us: of the request that each answers, or NO_REQUEST.
        delay: see `apply_signals`.
        retry_seconds: wait after the first failure; it doubles with each, up to a day.

    Returns:
        how many were news.
    """
    news = 0
    for index in range(rows.size):
        if rows[index] < 0:
            continue
        page = pages[rows[index]]
        time = crawled_at[index]
        if page.deadline > NEVER and (
            requested_us[index] == page.requested_us or time * 1e6 + 1.0 >= page.requested_us
        ):
            page.deadline = NEVER
        if results[index] == FAILED:
            if time > page.last_attempt_at:
                _apply_failure(page, time, retry_seconds)
                news += 1
        elif time > page.last_crawled_at:
            _apply_crawl(page, time, results[index] == MISSING, delay)
            news += 1
    return news


@compiled
def apply_parameters(
    pages: Rows,
    rows: NDArray[np.int32],
    alpha: NDArray[np.float64],
    kappa: NDArray[np.float64],
    gamma: NDArray[np.float64],
) -> None:
    """Set what was learned of pages; rows of -1 are left out. The last one of a page stands."""
    for index in range(rows.size):
        if rows[index] >= 0:
            page = pages[rows[index]]
            page.alpha = alpha[index]
            page.kappa = kappa[index]
            page.gamma = gamma[index]
