"""By when pages that are due must have been crawled: from the budget and what was down alone.

Pages beyond their bound come before all others, so they are served like a queue: at the budget's
rate while the system is up, not at all while it is down. When a queue has run empty, everybody who
joined it before has been served, in whatever order. That moment is the deadline of all of them. It
knows nothing of what the system says of itself.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.verify.checks.downtime import Downtimes

Floats = NDArray[np.float64]

SETTLE_SECONDS: Final = 2.0
"""A change of the budget may take so long to hold: until then the lower rate counts."""

_NEXT_TO_NOTHING: Final = 1e-4
"""What a crawl takes where there is no limit, in seconds; while all is down it takes longer."""


def deadlines(
    due: Floats,
    changes: Sequence[tuple[float, float]],
    downtimes: Downtimes,
    end: float,
    crawled: Floats | None = None,
) -> Floats:
    """By when each of the pages that were due must have been crawled.

    Args:
        due: Unix seconds, rising.
        changes: when the budget was set (Unix seconds), and to how many crawls per second; empty:
            there is no limit.
        downtimes: in which nothing is crawled.
        end: Unix seconds at which the budget was taken away.
        crawled: when each of the pages was crawled; infinite: never. Who was crawled while all was
            thought to be down no longer waits, as often only a part of it is. None: nobody.

    Returns:
        Unix seconds, in the order of `due`; infinite where the budget did not last.
    """
    if not due.size:
        return due
    times, served = _capacity(float(due[0]), changes, downtimes, end, crawled)
    joined = np.interp(due, times, served)
    # Whoever joins finds those before him, as far as they are not served yet.
    each = 1.0 if changes else _NEXT_TO_NOTHING
    ahead = np.arange(due.size) * each
    left = np.maximum.accumulate(joined - ahead) + ahead + each
    empty = np.append(left[:-1] <= joined[1:], True)
    ends = np.flatnonzero(empty)
    last = ends[np.searchsorted(ends, np.arange(due.size))]
    return np.maximum(_when(left[last], times, served), due)


def _capacity(
    begin: float,
    changes: Sequence[tuple[float, float]],
    downtimes: Downtimes,
    end: float,
    crawled: Floats | None,
) -> tuple[Floats, Floats]:
    """Moments, and how many crawls the budget had room for until each of them."""
    cuts = [begin, end, *(time for period in downtimes for time in period)]
    for time, _ in changes:
        cuts += [time, time + SETTLE_SECONDS]
    times = np.unique(np.clip(cuts, begin, max(begin, end)))
    middles = (times[1:] + times[:-1]) / 2
    rates = np.array([least_rate(changes, middle) for middle in middles.tolist()])
    for start, stop in downtimes:
        rates[(middles > start) & (middles < stop)] = 0.0
    capacity = np.concatenate([[0.0], np.cumsum(rates * np.diff(times))])
    if crawled is None or not changes:
        return times, capacity
    all_the_same = np.sort(crawled[_within(crawled, downtimes) & (crawled >= begin)])
    # A step, not a slope since the moment before.
    moments = np.unique(np.concatenate([times, np.nextafter(all_the_same, -np.inf), all_the_same]))
    served = np.searchsorted(all_the_same, moments, "right")
    return moments, np.interp(moments, times, capacity) + served


def _within(moments: Floats, periods: Downtimes) -> NDArray[np.bool_]:
    """Which moments lie in any of some periods."""
    inside = np.zeros(moments.size, np.bool_)
    for start, stop in periods:
        inside |= (moments > start) & (moments < stop)
    return inside


def least_rate(changes: Sequence[tuple[float, float]], time: float) -> float:
    """The budget at a time, in crawls per second, as far as it has settled."""
    if not changes:
        return 1.0
    held = [rate for at, rate in changes if at <= time] or [changes[0][1]]
    settled = [rate for at, rate in changes if at <= time - SETTLE_SECONDS] or held[:1]
    return min(held[-1], settled[-1])


def _when(served: Floats, times: Floats, capacity: Floats) -> Floats:
    """The first moment at which so many were served."""
    # Rounding must not put the last one behind the end.
    places = np.searchsorted(capacity, served - 1e-6)
    known = places < times.size
    after = np.minimum(places, times.size - 1)
    before = np.maximum(after - 1, 0)
    room = capacity[after] - capacity[before]
    part = np.divide(
        served - capacity[before], room, out=np.zeros(served.size), where=(room > 0) & known
    )
    moments = times[before] + np.clip(part, 0.0, 1.0) * (times[after] - times[before])
    return np.where(known, moments, np.inf)
