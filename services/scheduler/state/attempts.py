"""Crawls that are not settled: pages in flight, asked for at once, or whose last crawl failed.

They are few at a time, so they have rows of their own, which pages point to.

A request that nobody answers in time is a failure like any other. Nothing happens at that moment:
when the request is made it is noted from when on the page may be asked for again if no answer
comes (`begin_request`), and an answer takes that back (`answer_request`).
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import ATTEMPT, NEVER, Rows
from shared.policy.compiled import compiled
from shared.rules.page_events import (
    MOST_FAILURES,
    MOST_MISSES,
    failures_that_count,
    forgets_failures,
    is_news,
    is_wanted,
    misses_that_count,
    retry_time,
    status_after_crawl,
)
from shared.store.reserved import grown, reserved

NO_ATTEMPT: Final = 0

_MOST_UNANSWERED: Final = 200

_SMALLEST: Final = 64
_MOST_AT_ONCE: Final = 1 << 14
"""Rows that are made ready before they are needed, in some tens of microseconds."""


@compiled
def open_attempt(attempts: Rows, page: Any) -> Any:
    """The page's attempt, which is made if there is none; there must be room (`reserve`)."""
    if page.attempt == NO_ATTEMPT:
        place = attempts[0].next_free
        attempts[0].next_free = attempts[place].next_free
        attempts[0].requested_us -= 1
        page.attempt = place
        made = attempts[place]
        made.deadline = made.retry_at = made.urgent_at = made.settled_at = NEVER
        made.last_attempt_at = page.last_crawled_at
        made.requested_us = 0
        made.failures = made.unanswered = made.misses = 0
    return attempts[page.attempt]


@compiled
def close_attempt(attempts: Rows, page: Any) -> None:
    """Forget the page's attempt, if there is one."""
    if page.attempt != NO_ATTEMPT:
        attempts[page.attempt].deadline = NEVER
        attempts[page.attempt].next_free = attempts[0].next_free
        attempts[0].next_free = page.attempt
        attempts[0].requested_us += 1
        page.attempt = NO_ATTEMPT


@compiled
def close_if_settled(attempts: Rows, page: Any) -> None:
    """Forget an attempt that is answered and did not fail, if nobody asks for another."""
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        is_answered = attempt.deadline == NEVER and attempt.urgent_at == NEVER
        if is_answered and attempt.failures == 0 and attempt.unanswered == 0:
            close_attempt(attempts, page)


@compiled
def ask_at_once(attempts: Rows, page: Any, time: float) -> None:
    """Somebody asks for a page at once, at a time; there must be room for its attempt."""
    if is_wanted(time, page.last_crawled_at):
        attempt = open_attempt(attempts, page)
        attempt.urgent_at = max(attempt.urgent_at, time)


@compiled
def is_asked_anew(attempt: Any) -> bool:
    """Whether somebody has asked for a page at once since it was last tried, or asked for."""
    is_later = attempt.urgent_at * 1e6 > attempt.requested_us
    return bool(is_later and attempt.urgent_at > attempt.last_attempt_at)


@compiled
def note_good_crawl(attempts: Rows, page: Any, time: float) -> bool:
    """A crawl at a time went well; whether it is the latest attempt, so that failures are over."""
    is_latest: bool = forgets_failures(time, last_attempt_of(attempts, page))
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        if is_latest:
            attempt.last_attempt_at = time
            attempt.failures = attempt.misses = 0
        if not is_wanted(attempt.urgent_at, time):
            attempt.urgent_at = NEVER
    return is_latest


@compiled
def failures_of(page: Any, attempt: Any) -> int:
    """Crawls in a row that failed or were not answered, as far as they count; a request that waits
    counts as one."""
    failures = failures_that_count(page.status, attempt.failures, attempt.misses)
    failures += np.int64(attempt.unanswered)  # type: ignore[assignment]
    return failures + 1 if attempt.deadline > NEVER else failures


@compiled
def note_retry(page: Any, attempt: Any, first: float) -> None:
    """Note from when on a page may be asked for again, if nobody answers what waits.

    Args:
        page: whose status and last crawl are as they are now.
        attempt: its own, likewise.
        first: seconds that a page is left alone after its first failure.
    """
    waits = attempt.deadline > NEVER
    attempt.retry_at = retry_time(
        attempt.deadline if waits else attempt.last_attempt_at,
        failures_of(page, attempt),
        misses_that_count(page.status, attempt.misses),
        first,
        page.last_crawled_at,
    )


@compiled
def renew_retry(attempts: Rows, page: Any, first: float) -> None:
    """Status, failures or last crawl of a page are others: so is when it may be crawled again."""
    if page.attempt != NO_ATTEMPT:
        note_retry(page, attempts[page.attempt], first)


@compiled
def note_success(attempts: Rows, page: Any, time: float) -> None:
    """A crawl at a time went well: failures are over if it is the latest attempt."""
    page.status = status_after_crawl(page.status, note_good_crawl(attempts, page, time))


@compiled
def begin_request(
    attempts: Rows, page: Any, deadline: float, requested_us: int, first: float
) -> None:
    """A page is asked for; there must be room for its attempt (`reserve`).

    Args:
        attempts: all of them.
        page: which is in flight from now on.
        deadline: until when the request waits for an outcome.
        requested_us: when it was made, Unix microseconds.
        first: seconds that a page is left alone after its first failure.
    """
    attempt = open_attempt(attempts, page)
    if attempt.deadline > NEVER:
        attempt.unanswered = np.uint8(min(attempt.unanswered + 1, _MOST_UNANSWERED))
    attempt.deadline = deadline
    attempt.requested_us = requested_us
    note_retry(page, attempt, first)


@compiled
def end_request(attempt: Any, page: Any, first: float) -> None:
    """The request of a page does not wait any more, and did not fail by that."""
    attempt.deadline = NEVER
    note_retry(page, attempt, first)


@compiled
def is_since(time: float, requested_us: int) -> bool:
    """Whether a crawl at a time came after a request, and so answers it: none is taken to have been
    before it was asked for (`request_ids.crawl_time`)."""
    return time * 1e6 + 1.0 >= requested_us


@compiled
def answer_request(attempts: Rows, page: Any, time: float, requested_us: int, first: float) -> bool:
    """Whether the page's request is answered: by an outcome with its id, or of a crawl after it.

    An answer to an earlier request comes after the later one where a scheduler loads: it reads
    requests first. Those that nobody seemed to have answered have not been in vain then either.
    """
    if page.attempt == NO_ATTEMPT:
        return False
    attempt = attempts[page.attempt]
    is_answer: bool = attempt.deadline > NEVER and (
        requested_us == attempt.requested_us or is_since(time, attempt.requested_us)
    )
    if is_answer:
        attempt.unanswered = 0
        end_request(attempt, page, first)
    elif attempt.unanswered > 0 and is_news(
        time, max(last_attempt_of(attempts, page), attempt.settled_at)
    ):
        attempt.unanswered = 0
        note_retry(page, attempt, first)
    return is_answer


@compiled
def last_attempt_of(attempts: Rows, page: Any) -> float:
    """When the page was last crawled, successfully or not."""
    last: float = page.last_crawled_at
    if page.attempt != NO_ATTEMPT:
        last = max(last, attempts[page.attempt].last_attempt_at)
    return last


@compiled
def load_attempts(
    pages: Rows,
    attempts: Rows,
    rows: NDArray[np.int64],
    last_attempt_at: NDArray[np.float64],
    failures: NDArray[np.int32],
    misses: NDArray[np.int16],
    retry_seconds: float,
) -> None:
    """Pages of which the last crawl failed, as the database has them; one element each.

    Args:
        pages: rows of the shard.
        attempts: with room for one more a page.
        rows: of the pages.
        last_attempt_at: when it failed.
        failures: in a row.
        misses: 404s among them.
        retry_seconds: wait after the first failure (see `page_events.retry_wait`).
    """
    for place in range(rows.size):
        page = pages[rows[place]]
        attempt = open_attempt(attempts, page)
        attempt.last_attempt_at = last_attempt_at[place]
        attempt.failures = min(failures[place], MOST_FAILURES)
        attempt.misses = min(misses[place], MOST_MISSES)
        end_request(attempt, page, retry_seconds)


@compiled
def take_back_requests(
    pages: Rows, attempts: Rows, rows: NDArray[np.int64], retry_seconds: float
) -> None:
    """Requests that were made are not sent after all: who wanted a page at once still does."""
    for row in rows:
        page = pages[row]
        if page.attempt != NO_ATTEMPT:
            attempts[page.attempt].requested_us = 0
            end_request(attempts[page.attempt], page, retry_seconds)
            close_if_settled(attempts, page)


class Attempts:
    """The rows. Row 0 is nobody's: its `next_free` begins the list of free rows, its
    `requested_us` counts them."""

    def __init__(self) -> None:
        self._room: Rows = reserved(_SMALLEST, ATTEMPT)
        self.rows: Rows = self._room[:1]
        self._extend(_SMALLEST)

    def reserve(self, count: int) -> Rows:
        """The rows, with room for so many more attempts."""
        free = int(self.rows[0]["requested_us"])
        if free < count:
            self._extend(self.rows.size + max(count, min(self.rows.size, _MOST_AT_ONCE)))
        return self.rows

    def open(self, page: Rows) -> Any:
        """The attempt of a page, a row of `PAGE`; it is made if there is none. Writes through."""
        open_attempt(self.reserve(1), page)
        return self.rows[page["attempt"]]

    def _extend(self, size: int) -> None:
        begin = self.rows.size
        if size > self._room.size:
            self._room = grown(self._room, max(size, 2 * self._room.size))
        self.rows = self._room[:size]
        self.rows["deadline"][begin:] = NEVER
        self.rows["next_free"][begin:] = np.arange(begin + 1, size + 1)
        self.rows["next_free"][-1] = self.rows[0]["next_free"]
        self.rows[0]["next_free"] = begin
        self.rows[0]["requested_us"] += size - begin
