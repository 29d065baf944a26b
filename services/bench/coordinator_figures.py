"""Whether crawls kept to a budget, from when they were asked for and when the budget was what."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.pacing.slots import SlotTimeline

WINDOW_SECONDS = 1.0

_STEP_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Crawls:
    """Requests in the order of time."""

    times: NDArray[np.float64]
    """Seconds of the wall since the clock was started, rising."""
    shards: NDArray[np.int64]

    def within(self, start: float, end: float) -> int:
        """How many were in [start, end)."""
        first, last = np.searchsorted(self.times, [start, end])
        return int(last - first)

    def without(self, shard: int) -> "Crawls":
        """Those of the other shards."""
        others = self.shards != shard
        return Crawls(self.times[others], self.shards[others])


def rate_check(
    crawls: Crawls, rate: float, start: float, end: float, tolerance: float
) -> dict[str, object]:
    """The rate of the crawls in [start, end), and whether it is the wanted one.

    Args:
        crawls: of all shards.
        rate: that is wanted, per second of the wall.
        start: wall seconds.
        end: wall seconds.
        tolerance: relative.
    """
    achieved = crawls.within(start, end) / (end - start)
    error = achieved / rate - 1.0
    # A window of any length holds its budget to within one crawl.
    allowed = tolerance + 1.0 / (rate * (end - start))
    return {
        "wanted_per_second": round(rate, 3),
        "achieved_per_second": round(achieved, 3),
        "error": round(error, 5),
        "passed": abs(error) <= allowed,
    }


def most_over(crawls: Crawls, timeline: SlotTimeline, origin: float, speed: float) -> float:
    """By how much the fullest second of all holds more crawls than its budget.

    Args:
        crawls: of all shards.
        timeline: the budget as it was published.
        origin: clock time at wall second 0.
        speed: clock seconds in one of the wall.
    """
    times = crawls.times
    counts = np.arange(1, times.size + 1) - np.searchsorted(times, times - WINDOW_SECONDS, "right")
    slots = budget_of(timeline, times, origin, speed) - budget_of(
        timeline, times - WINDOW_SECONDS, origin, speed
    )
    return float(np.max(counts - slots, initial=0.0))


def budget_of(
    timeline: SlotTimeline, times: NDArray[np.float64], origin: float, speed: float
) -> NDArray[np.float64]:
    """Slots that have passed at each time (wall seconds)."""
    return np.array([timeline.passed(origin + speed * time) for time in times.tolist()])


def seconds_until_full(
    crawls: Crawls, rate: float, since: float, until: float, slack: float
) -> float | None:
    """How long after a moment every second until another is full again.

    Args:
        crawls: those that count.
        rate: that is wanted, per second.
        since: the moment, wall seconds.
        until: the end of the last second that is looked at.
        slack: crawls that a full second may lack.

    Returns:
        wall seconds; None: never in that time.
    """
    starts = np.arange(since, until - WINDOW_SECONDS, _STEP_SECONDS)
    first = np.searchsorted(crawls.times, starts)
    last = np.searchsorted(crawls.times, starts + WINDOW_SECONDS)
    short = np.flatnonzero(last - first < rate * WINDOW_SECONDS - slack)
    if not short.size:
        return 0.0
    if short[-1] + 1 >= starts.size:
        return None
    return float(starts[short[-1] + 1] - since)
