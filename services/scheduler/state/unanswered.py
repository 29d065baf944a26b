"""What others have to know of pages whose requests nobody answers: who loads the shard next.

Nothing happens when the time of a request passes (`attempts`), and nobody else hears of it. So
requests are noted here as they are made, and it is looked later which of them were not answered in
time: those of `UnansweredPages`. A page that had been written and is answered then, or goes, is
noted as well.
"""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import (
    NO_ATTEMPT,
    Attempts,
    is_since,
    last_attempt_of,
    note_retry,
    open_attempt,
)
from services.scheduler.state.rows import NEVER, Rows
from services.scheduler.state.rules import ShardRules
from shared.contracts.request_ids import microseconds
from shared.policy.compiled import compiled
from shared.rules.page_events import is_news
from shared.store.columns import UnansweredNews, UnansweredPages

MOST_AT_ONCE: Final = 10_000
"""Pages of which news are told at once: a few tenths of a second for the database."""

MOST_ANSWERED: Final = 100_000
"""Pages that are answered are noted up to so many. What is left of others does no harm, and goes
when the shard is loaded."""

_SMALLEST: Final = 64

_REQUEST: Final = np.dtype([("deadline", np.float64), ("row", np.int32)])


class _Space(Protocol):
    """What is read of a shard."""

    number: int
    claim: str
    pages: Rows
    attempts: Attempts
    rules: ShardRules
    is_caught_up: bool

    def rows_of(self, page_ids: NDArray[np.int64]) -> NDArray[np.int32]: ...

    def page_ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...


class Unanswered:
    """The pages of a shard that nobody answers, as far as others know them, or are to."""

    def __init__(self, shard: _Space) -> None:
        self._shard = shard
        self._asked = np.zeros(_SMALLEST, _REQUEST)
        """About by their deadlines; those from `_begin` to `_end` are not looked at yet."""
        self._begin = self._end = 0
        self._looked_until = NEVER
        """Requests whose deadlines are later were not looked at yet."""
        self._answered: NDArray[np.int64] = np.empty(0, np.int64)
        self._untold: UnansweredNews | None = None
        self._to_come: dict[int, int] = {}
        """Pages that are not here → their places in `_stored`: estimators may have yet to hear of
        them."""
        self._stored = UnansweredPages.none()

    def load(self, stored: UnansweredPages) -> None:
        """Go on where the scheduler before has been, once the pages are there with their failures.

        What a crawl has answered since is to be forgotten; and so is what is of pages that are not
        here, once all is read that could bring them.
        """
        if not stored.page_ids.size:
            return
        are_here = self._shard.rows_of(stored.page_ids) >= 0
        self._stored = stored.chosen(~are_here)
        self._to_come = {page_id: n for n, page_id in enumerate(self._stored.page_ids.tolist())}
        self._load(stored.chosen(are_here))

    def came(self, page_id: int) -> None:
        """A page was added that was not here."""
        place = self._to_come.pop(page_id, None) if self._to_come else None
        if place is not None:
            self._load(self._stored.chosen(slice(place, place + 1)))

    def _load(self, stored: UnansweredPages) -> None:
        if not stored.page_ids.size:
            return
        shard, rows = self._shard, self._shard.rows_of(stored.page_ids)
        counts = load_unanswered(
            shard.pages,
            shard.attempts.reserve(rows.size),
            rows,
            stored.requests,
            microseconds(stored.requested_at),
            stored.deadline_at,
            stored.last_attempt_at,
            shard.rules.failed_retry,
        )
        self._looked_until = max(self._looked_until, float(stored.deadline_at.max()))
        self._note_answered(stored.page_ids[~counts])

    def are_later(
        self, rows: NDArray[np.int32], requested_us: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which requests are later than the last ones that are known of their pages.

        Args:
            rows: of the pages; -1: unknown.
            requested_us: when each was made, as in its id.
        """
        attempts = self._shard.attempts.rows
        places = np.where(rows >= 0, self._shard.pages["attempt"][rows], NO_ATTEMPT)
        later: NDArray[np.bool_] = requested_us > attempts["requested_us"][places]
        later |= places == NO_ATTEMPT
        return later

    def asked(self, rows: NDArray[np.int64] | NDArray[np.int32]) -> None:
        """Pages are in flight from now on, by their rows; -1: none."""
        rows = rows[rows >= 0]
        if rows.size:
            self._make_room(rows.size)
            noted = self._asked[self._end : self._end + rows.size]
            attempts = self._shard.attempts.rows
            noted["row"] = rows
            noted["deadline"] = attempts["deadline"][self._shard.pages["attempt"][rows]]
            self._end += rows.size

    def among(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Those of some pages of which others may know that nobody answers them; -1: none."""
        if self._looked_until == NEVER:
            return rows[:0]  # as most often
        rows = rows[rows >= 0]
        found: NDArray[np.int32] = rows[self._are_known(rows)]
        return found

    def answered(self, rows: NDArray[np.int32]) -> None:
        """Crawls of pages were heard of that were `among` some before: maybe it is over."""
        over = rows[~self._are_known(rows)] if rows.size else rows
        if over.size:
            self._note_answered(self._shard.page_ids_of(over.astype(np.int64)))

    def _are_known(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Of which pages others may know it, as they are now."""
        places = self._shard.pages["attempt"][rows]
        attempts = self._shard.attempts.rows[places]
        known: NDArray[np.bool_] = attempts["deadline"] <= self._looked_until
        known &= attempts["deadline"] > NEVER
        known |= attempts["unanswered"] > 0
        known &= places != NO_ATTEMPT
        return known

    def removed(self, page_id: int, row: int) -> None:
        """A page goes; its row is as it was."""
        if self.among(np.array([row], np.int32)).size:
            self._note_answered(np.array([page_id], np.int64))

    def news(self, now: float) -> UnansweredNews | None:
        """What is to be told to others, some of it at once; the same again until it is `told`.

        Args:
            now: requests whose deadlines have passed by then are looked at.
        """
        if self._to_come and self._shard.is_caught_up:
            self._note_answered(np.fromiter(self._to_come, np.int64))
            self._to_come, self._stored = {}, UnansweredPages.none()
        if self._untold is None:
            pages = self._take(now)
            answered = np.unique(self._answered)
            self._answered = answered[MOST_AT_ONCE:]
            answered = np.setdiff1d(answered[:MOST_AT_ONCE], pages.page_ids)
            if pages.page_ids.size or answered.size:
                shard = self._shard
                self._untold = UnansweredNews(shard.number, shard.claim, pages, answered)
        return self._untold

    def told(self) -> None:
        """The last news are known, or others have the shard."""
        self._untold = None

    def _take(self, now: float) -> UnansweredPages:
        """The pages of some requests that were not answered in time; these are looked at then."""
        asked = self._asked[self._begin : min(self._begin + MOST_AT_ONCE, self._end)]
        have_passed = asked["deadline"] <= now
        # One that waits for longer holds up others, for a time-out at most.
        asked = asked if have_passed.all() else asked[: int(have_passed.argmin())]
        if not asked.size:
            return UnansweredPages.none()
        self._begin += asked.size
        self._looked_until = max(self._looked_until, float(asked["deadline"].max()))
        shard, rows = self._shard, np.unique(asked["row"][self._wait(asked)])
        pages = shard.pages[rows]
        attempts = shard.attempts.rows[pages["attempt"]]
        return UnansweredPages(
            shard.page_ids_of(rows.astype(np.int64)),
            attempts["unanswered"].astype(np.int16) + np.int16(1),
            attempts["requested_us"] / 1e6,
            attempts["deadline"],
            np.maximum(pages["last_crawled_at"], attempts["last_attempt_at"]),
        )

    def _wait(self, asked: Rows) -> NDArray[np.bool_]:
        """Which requests are the last of their pages, and not answered."""
        places = self._shard.pages["attempt"][asked["row"]]
        deadlines = self._shard.attempts.rows["deadline"][places]
        waits: NDArray[np.bool_] = (places != NO_ATTEMPT) & (deadlines == asked["deadline"])
        return waits

    def _make_room(self, count: int) -> None:
        if self._end + count <= self._asked.size:
            return
        asked = self._asked[self._begin : self._end]
        # Where nobody has looked for long, only those are kept that still wait: pages at most.
        asked = asked[self._wait(asked)]
        wanted = 2 * (asked.size + count)
        self._asked = np.zeros(max(wanted, _SMALLEST), _REQUEST)
        self._begin, self._end = 0, asked.size
        self._asked[: asked.size] = asked

    def _note_answered(self, page_ids: NDArray[np.int64]) -> None:
        self._answered = np.concatenate((self._answered, page_ids))[-MOST_ANSWERED:]


@compiled
def load_unanswered(
    pages: Rows,
    attempts: Rows,
    rows: NDArray[np.int32],
    requests: NDArray[np.int16],
    requested_us: NDArray[np.int64],
    deadlines: NDArray[np.float64],
    last_attempt_at: NDArray[np.float64],
    retry_seconds: float,
) -> NDArray[np.bool_]:
    """Pages that nobody has answered, as the database has them; one element each.

    Args:
        pages: rows of the shard.
        attempts: with room for one more a page.
        rows: of the pages.
        requests: how many in a row were not answered.
        requested_us: when the last one was made, as in its id.
        deadlines: until when it waited.
        last_attempt_at: the last crawl that was known then.
        retry_seconds: wait after the first failure (see `page_events.retry_wait`).

    Returns:
        which are not answered up to now. Where a crawl is known that was later than the last one
        then, and not a crawl for the last request, only this one was in vain.
    """
    counts = np.zeros(rows.size, np.bool_)
    for place in range(rows.size):
        page = pages[rows[place]]
        last = last_attempt_of(attempts, page)
        if is_since(last, requested_us[place]):
            continue
        attempt = open_attempt(attempts, page)
        attempt.deadline = deadlines[place]
        attempt.requested_us = requested_us[place]
        # An estimator that is behind does not know it yet: it is heard of once more.
        attempt.settled_at = last_attempt_at[place]
        is_answered = is_news(last, last_attempt_at[place])
        attempt.unanswered = 0 if is_answered else requests[place] - 1
        note_retry(page, attempt, retry_seconds)
        counts[place] = True
    return counts
