"""What is known of pages that are not here: they have yet to be added, or were removed.

A page that comes, or comes again, before its request is answered is in flight. And one that an
import has brought may be signalled before it is found in the database.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.events import Requests
from services.scheduler.state.rows import NEVER, Rows

MOST_SIGNALS: Final = 50_000
"""So many of a shard's are kept, some megabytes: minutes of them, where few are about strangers."""


class Signals(NamedTuple):
    """Signals in order of time, as `Shard.signals` takes them."""

    page_ids: NDArray[np.int64]
    observed_at: NDArray[np.float64]
    sources: list[str]


class AbsentPages:
    """Those of a shard."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[int, float]] = {}
        """Page id → when it was asked for (Unix microseconds), until when the request waits. About
        by that time: all have the same time-out."""
        self._signals: deque[tuple[int, float, str]] = deque(maxlen=MOST_SIGNALS)
        """Page id, Unix seconds, source; the last ones that came."""

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

    def signalled(
        self,
        page_ids: NDArray[np.int64],
        are_absent: NDArray[np.bool_],
        observed_at: NDArray[np.float64],
        sources: Sequence[str],
    ) -> None:
        """Signals came; of pages that are not here, some."""
        for place in np.flatnonzero(are_absent).tolist():
            self._signals.append((page_ids.item(place), observed_at.item(place), sources[place]))

    def signals_of(self, since: Mapping[int, float]) -> Signals:
        """Signals of pages that have come: page id → those later than that (Unix seconds) count."""
        found = [one for one in self._signals if one[1] > since.get(one[0], np.inf)]
        found.sort(key=lambda one: one[1])
        ids, times = [one[0] for one in found], [one[1] for one in found]
        return Signals(np.array(ids, np.int64), np.array(times, float), [one[2] for one in found])

    def _note(self, page_id: int, requested_us: int, until: float) -> None:
        self._asked.pop(page_id, None)
        self._asked[page_id] = requested_us, until
