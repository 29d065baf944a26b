"""How many requests may be on their way: as many as the fleet is seen to answer in time. Pure.

A fleet that is slower than the budget would have ever more requests before it, until all of them
time out while they wait, and are made again: it would do nothing but old work. By Little's law a
request waits for as long as the fleet needs for all that are on their way; so no more are made than
it has answered, at its pace of late, in half of the time after which a request counts as lost.
Then it gets requests as fast as it answers them, and none of them is late.

What it was not asked for it cannot answer. So its pace is that of the time in which answers were
due: while something has waited for as long as answers take. Else a fleet that takes its time for
each request would look slow after every gap in what it was asked for, and be asked for less.

Where nobody has seen its pace it is taken for a quarter of the budget: at a start, and where the
budget rises and the fleet was not behind. One that can do a sixth of the budget does all that it is
asked for then in time. To ask for everything until something is late would leave slow fleets with
old work alone.

While shards are split, crawlers answer where pages were before, and who has asked hears of it once
an estimator has passed it on. How long that takes says nothing of the fleet: what is seen of such
answers where they come in counts for its pace, in whatever process that is. So an answer may count
for two; then a request waits for all of the time-out, at most.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 0.5
"""Part of the time-out in which the fleet could answer all that is on its way."""

FIRST_GUESS: Final = 1 / 4
"""Part of the budget that a fleet is taken to answer of which nothing is known, at that budget."""

LEAST: Final = 16
"""So many may always be on their way: else nobody would see that the fleet is there again."""

_MEMORY: Final = 1 / 4
"""Of the time-out: the pace is that of about so long."""

_COUNTED: Final = 1 / 16
"""Of the time-out: requests are counted anew at most so often."""


class _Asked:
    """What was asked for of late, in this order."""

    def __init__(self) -> None:
        self._log: deque[tuple[float, int]] = deque()
        self._count = 0

    def add(self, time: float, requests: int) -> None:
        """So many were asked for at a time."""
        if requests:
            self._log.append((time, requests))
            self._count += requests

    def since(self, count: int) -> float:
        """When the last so many were begun to be asked for; infinite: there are none.

        More are forgotten: at each call there are as many as are on their way.
        """
        while self._log and self._count - self._log[0][1] >= count:
            self._count -= self._log.popleft()[1]
        return self._log[0][0] if self._log else math.inf


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
        self.pace = 0.0
        """Answers per second, of late."""
        self._most = 0.0
        """The highest rate of late, requests per second."""
        self._takes = PATIENCE * timeout
        """Seconds after which answers come, at least; all of its patience before one has come."""
        self._asked = _Asked()
        self._in_flight = 0
        self._at = self._counted_at = self._full_at = -math.inf

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
        # Where nothing was asked for a while, or the clock was set, that says nothing of the fleet.
        passed = min(max(now - self._at, 0.0), _COUNTED * self._timeout)
        self._at = now
        self._learn(passed, answered + elsewhere)
        self._trust(passed, rate)
        self._in_flight = max(self._in_flight - answered, 0)
        limit = self.limit
        if 2 * self._in_flight > limit and self._is_dated(now):
            self._in_flight, self._counted_at = self._count(now), now
        return max(limit - self._in_flight, 0)

    def asked(self, requests: int) -> None:
        """Requests were made."""
        self._asked.add(self._at, requests)
        self._in_flight += requests
        if self._in_flight >= self.limit:
            self._full_at = self._at

    def recount(self) -> None:
        """Other requests are ours now."""
        self._in_flight, self._counted_at = 1 << 62, -math.inf

    def _learn(self, passed: float, answers: int) -> None:
        """Take what came, or did not, in the time since the last call."""
        waited = self._at - self._asked.since(self._in_flight) if self._in_flight else -math.inf
        if answers and waited >= 0.0:
            known, forgotten = min(self._takes, waited), 1.0 - math.exp(-passed / self._timeout)
            self._takes = min(known + forgotten * (waited - known), PATIENCE * self._timeout)
        seconds = passed if answers or waited >= self._takes else 0.0
        if self._most > 0.0:
            # What comes all at once was not made in a moment, and no faster than it was asked for.
            seconds = max(seconds, answers / self._most)
        if seconds > 0.0:
            keep = math.exp(-seconds / (_MEMORY * self._timeout))
            self.pace = keep * self.pace + (1.0 - keep) * answers / seconds

    def _trust(self, passed: float, rate: float) -> None:
        """Follow the budget: where it rises, the fleet may do more than it was ever asked for."""
        is_behind = self._at - self._full_at <= self._timeout
        if rate > self._most and not is_behind:
            self.pace = max(self.pace, FIRST_GUESS * rate)
        self._most = max(self._most * math.exp(-passed / self._timeout), rate)

    def _is_dated(self, now: float) -> bool:
        return not 0.0 <= now - self._counted_at < _COUNTED * self._timeout
