"""How many requests may be on their way: as many as the fleet is seen to answer in time. Pure.

A fleet that is slower than the budget would have ever more requests before it, until all of them
time out while they wait, and are made again: it would do nothing but old work. By Little's law a
request waits for as long as the fleet needs for all that are on their way; so no more are made than
it has answered, at its pace of late, in half of the time after which a request counts as lost.
Then it gets requests as fast as it answers them, and none of them is late.

While shards are split, crawlers answer where pages were before, and who has asked hears of it once
an estimator has passed it on. How long that takes says nothing of the fleet: what is seen of such
answers where they come in counts for its pace, in whatever process that is. So an answer may count
for two; then a request waits for all of the time-out, at most.
"""

import math
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 0.5
"""Part of the time-out in which the fleet could answer all that is on its way."""

FIRST_GUESS: Final = 1 / 4
"""Part of the budget that a fleet of which nothing is known is taken to answer."""

LEAST: Final = 16
"""So many may always be on their way: else nobody would see that the fleet is there again."""

_MEMORY: Final = 1 / 4
"""Of the time-out: the pace is that of about so long."""

_COUNTED: Final = 1 / 16
"""Of the time-out: requests are counted anew at most so often."""


class FleetWindow:
    """Follows the requests of a process and their answers. Times are clock seconds, and may be set.

    What is on its way is counted anew, which takes a look at all of it, only where it matters: far
    from the limit it is enough to know that there are no more.
    """

    def __init__(self, timeout: float, count: Callable[[float], int]) -> None:
        """Begin knowing nothing of the fleet.

        Args:
            timeout: after which a request counts as lost.
            count: the requests that wait at a time, and are not late.
        """
        self._timeout, self._count = timeout, count
        self._pace: float | None = None
        self._in_flight = 0
        self._at = self._counted_at = -math.inf

    @property
    def pace(self) -> float:
        """Answers per second, of late."""
        return self._pace or 0.0

    @property
    def limit(self) -> int:
        """How many requests may be on their way."""
        return max(int(PATIENCE * self._timeout * self.pace), LEAST)

    def room(self, now: float, answered: int, rate: float, elsewhere: int = 0) -> int:
        """How many requests may be made now.

        Args:
            now: the time.
            answered: requests that were answered since the last call.
            rate: requests per second that the budget asks for.
            elsewhere: answers that came here meanwhile and have yet to be passed on.
        """
        self._follow(now, answered, elsewhere, rate)
        limit = self.limit
        if 2 * self._in_flight > limit and self._is_dated(now):
            self._in_flight, self._counted_at = self._count(now), now
        return max(limit - self._in_flight, 0)

    def asked(self, requests: int) -> None:
        """Requests were made."""
        self._in_flight += requests

    def recount(self) -> None:
        """Other requests are ours now."""
        self._in_flight, self._counted_at = 1 << 62, -math.inf

    def _follow(self, now: float, answered: int, elsewhere: int, rate: float) -> None:
        # Where nothing was asked for a while, or the clock was set, that says nothing of the fleet.
        passed = min(max(now - self._at, 0.0), _COUNTED * self._timeout)
        self._at = now
        if self._pace is None:
            self._pace = FIRST_GUESS * rate
        elif self._in_flight > 0 or answered + elsewhere > 0:
            # While nothing waits for the fleet, nothing is learned of it.
            keep = math.exp(-passed / (_MEMORY * self._timeout))
            new = (answered + elsewhere) / passed if passed > 0 else 0.0
            self._pace = keep * self._pace + (1.0 - keep) * new
        self._in_flight = max(self._in_flight - answered, 0)

    def _is_dated(self, now: float) -> bool:
        return not 0.0 <= now - self._counted_at < _COUNTED * self._timeout
