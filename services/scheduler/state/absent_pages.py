"""Requests on their way of pages that are not here: they have yet to be added, or were removed.

A page that comes, or comes again, before its request is answered is in flight.
"""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.events import Requests
from services.scheduler.state.rows import NEVER, Rows


class AbsentPages:
    """Page id → when it was asked for (Unix microseconds), until when the request waits."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[int, float]] = {}
        """About by the time until when they wait: all have the same time-out."""

    def asked(self, requests: Requests, are_absent: NDArray[np.bool_]) -> None:
        """Requests were made before the shard was loaded; of pages that are not here, some."""
        columns = requests.page_ids, requests.requested_us, requests.deadlines
        for one in zip(*(column[are_absent].tolist() for column in columns), strict=True):
            self._note(*one)

    def removed(self, page_id: int, page: Rows, attempts: Rows) -> None:
        """A page goes; its row is as it was."""
        attempt = attempts[page["attempt"]]
        if page["attempt"] != NO_ATTEMPT and attempt["deadline"] > NEVER:
            self._note(page_id, int(attempt["requested_us"]), float(attempt["deadline"]))

    def take(self, page_id: int) -> tuple[int, float] | None:
        """The request of a page that comes."""
        return self._asked.pop(page_id, None)

    def answered(self, page_ids: NDArray[np.int64]) -> None:
        """Crawls of these pages are known, which are not here."""
        if self._asked:
            for page_id in page_ids.tolist():
                self._asked.pop(page_id, None)

    def time_out(self, now: float) -> None:
        """Forget what does not wait any more. One that waits longer holds up others, for a time-out
        at most."""
        while self._asked and self._asked[first := next(iter(self._asked))][1] <= now:
            del self._asked[first]

    def _note(self, page_id: int, requested_us: int, until: float) -> None:
        self._asked.pop(page_id, None)
        self._asked[page_id] = requested_us, until
