"""Crawls that are not settled: pages in flight, and pages whose last crawl failed.

They are few at a time, so they have rows of their own, which pages point to.
"""

from typing import Any, Final

import numpy as np

from services.scheduler.state.rows import ATTEMPT, NEVER, Rows
from shared.policy.compiled import compiled
from shared.store.reserved import grown, reserved

NO_ATTEMPT: Final = 0

_SMALLEST: Final = 64
_MOST_AT_ONCE: Final = 1 << 14
"""Rows that are made ready before they are needed, in some tens of microseconds."""


@compiled
def open_attempt(attempts: Rows, page: Any) -> Any:
    """The page's attempt, which is made if there is none; there must be room (`reserve`)."""
    if page.attempt == NO_ATTEMPT:
        place = attempts[0].next_free
        attempts[0].next_free = attempts[place].next_free
        attempts[0].failures -= 1
        page.attempt = place
        made = attempts[place]
        made.deadline = made.retry_at = NEVER
        made.last_attempt_at = page.last_crawled_at
        made.requested_us = 0
        made.failures = 0
    return attempts[page.attempt]


@compiled
def close_attempt(attempts: Rows, page: Any) -> None:
    """Forget the page's attempt, if there is one."""
    if page.attempt != NO_ATTEMPT:
        attempts[page.attempt].deadline = NEVER
        attempts[page.attempt].next_free = attempts[0].next_free
        attempts[0].next_free = page.attempt
        attempts[0].failures += 1
        page.attempt = NO_ATTEMPT


@compiled
def close_if_settled(attempts: Rows, page: Any) -> None:
    """Forget an attempt that is answered, and did not fail."""
    if page.attempt != NO_ATTEMPT:
        attempt = attempts[page.attempt]
        if attempt.deadline == NEVER and attempt.failures == 0:
            close_attempt(attempts, page)


@compiled
def last_attempt_of(attempts: Rows, page: Any) -> float:
    """When the page was last crawled, successfully or not."""
    last: float = page.last_crawled_at
    if page.attempt != NO_ATTEMPT:
        last = max(last, attempts[page.attempt].last_attempt_at)
    return last


class Attempts:
    """The rows. Row 0 is nobody's: its `next_free` begins the list of free rows, its `failures`
    counts them."""

    def __init__(self) -> None:
        self._room: Rows = reserved(_SMALLEST, ATTEMPT)
        self.rows: Rows = self._room[:1]
        self._extend(_SMALLEST)

    def reserve(self, count: int) -> Rows:
        """The rows, with room for so many more attempts."""
        free = int(self.rows[0]["failures"])
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
        self.rows[0]["failures"] += size - begin
