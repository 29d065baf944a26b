"""What the budget allowed, second by second, and whether the crawls kept to it."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.world.plan import BudgetStep
from shared.units import SECONDS_PER_DAY

SETTLE_SECONDS = 2.0
"""Seconds of the wall in which a new budget must have taken effect; until then either holds."""

ROUNDING_CRAWLS = 1e-3
"""Times on the topics are rounded."""

TOLERANCE_CRAWLS = 1.0
"""A second may hold one crawl more than its budget: slots do not fall on its bounds."""

REACHED_SHARE = 0.95
"""A rate that is so near to a higher budget, or so little above a lower one, has reached it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The steps of the budget. Times are wall seconds since the run began."""

    times: NDArray[np.float64]
    """Rising; the first is 0."""
    rates: NDArray[np.float64]
    """Crawls per second of the wall from each time on."""

    @classmethod
    def from_steps(cls, steps: Sequence[BudgetStep], speed: float) -> "Budget":
        """The budget of a plan on a clock that runs `speed` times as fast as the wall."""
        return cls(
            np.array([step.day for step in steps]) * SECONDS_PER_DAY / speed,
            np.array([step.crawls_per_second for step in steps]) * speed,
        )

    def with_step(self, time: float, rate: float) -> "Budget":
        """The budget with a change that the plan did not foresee: somebody set it meanwhile."""
        place = int(np.searchsorted(self.times, time, "right"))
        return Budget(np.insert(self.times, place, time), np.insert(self.rates, place, rate))

    def rate_at(self, time: float) -> float:
        """Crawls per second that the budget allows at a time."""
        return float(self.rates[max(int(np.searchsorted(self.times, time, "right")) - 1, 0)])

    def _most_at(self, time: float) -> float:
        """The same, but any budget may hold that did within the time that a change settles in."""
        first, last = np.searchsorted(self.times, [time - SETTLE_SECONDS, time], "right") - 1
        return float(self.rates[max(int(first), 0) : max(int(last), 0) + 1].max())

    def allowed(self, start: float, end: float) -> float:
        """The most crawls in [start, end): while changes settle, the highest budget counts."""
        cuts = np.concatenate([self.times, self.times[1:] + SETTLE_SECONDS])
        cuts = np.unique(np.clip(np.append(cuts, [start, end]), start, end))
        total = 0.0
        for left, right in itertools.pairwise(cuts.tolist()):
            total += self._most_at((left + right) / 2) * (right - left)
        return float(total)

    def integral(self, end: float) -> float:
        """Crawls that the budget holds in [0, end)."""
        ends = np.append(self.times[1:], np.inf)
        lengths = np.maximum(np.minimum(ends, end) - self.times, 0.0)
        return float(lengths @ self.rates)

    def most_until(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """The most crawls until each time, to be subtracted from one another (see `allowed`)."""
        cuts = np.unique(np.concatenate([self.times, self.times[1:] + SETTLE_SECONDS]))
        middles = np.append((cuts[:-1] + cuts[1:]) / 2, cuts[-1] + 1.0)
        rates = np.array([self._most_at(middle) for middle in middles.tolist()])
        until = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(cuts))])
        places = np.maximum(np.searchsorted(cuts, times, "right") - 1, 0)
        return np.asarray(until[places] + rates[places] * (times - cuts[places]))

    def seconds_over(self, counts: dict[int, int], end: float) -> int:
        """How many whole seconds before `end` hold more crawls than allowed, by over one.

        Args:
            counts: second → crawls in it.
            end: wall seconds since the run began.
        """
        return sum(
            count > self.allowed(second, second + 1) + TOLERANCE_CRAWLS
            for second, count in counts.items()
            if second >= 0 and second + 1 <= end
        )


def overdrawn(
    times: NDArray[np.float64],
    until: NDArray[np.float64],
    since: NDArray[np.float64],
    at_once: float,
) -> list[tuple[float, float]]:
    """Crawls that are too many for some window, of whatever length, that ends with them.

    Args:
        times: of the crawls, rising.
        until: how many crawls there was room for until each of them.
        since: the same for the beginning of a window that begins with it.
        at_once: crawls that a window may hold beside that.

    Returns:
        when there was one too many, and by how much. It is forgiven: the windows after it are as
        if it had not been.
    """
    over = []
    least = np.inf
    for number, (time, room, before) in enumerate(
        zip(times.tolist(), until.tolist(), since.tolist(), strict=True)
    ):
        least = min(least, number - before)
        excess = number + 1 - at_once - room - least
        if excess > ROUNDING_CRAWLS:
            over.append((time, excess))
            least += 1.0
    return over


def seconds_until_reached(
    times: NDArray[np.float64], changed_at: float, rate: float, before: float
) -> float | None:
    """How long after a change of the budget the rate of crawls is at the new one.

    Args:
        times: crawls, wall seconds, in any order.
        changed_at: when the new budget was made known.
        rate: the new budget, crawls per second.
        before: the old one.

    Returns:
        the beginning, after the change, of the first second whose crawls are at the new budget;
        None: there is none in the times given.
    """
    ordered = np.sort(times)
    if not ordered.size:
        return None
    starts = np.arange(changed_at, ordered[-1] - 1.0 + 1e-9, 0.05)
    counts = np.searchsorted(ordered, starts + 1.0) - np.searchsorted(ordered, starts)
    if rate >= before:
        reached = counts >= REACHED_SHARE * rate - TOLERANCE_CRAWLS
    else:
        reached = counts <= rate / REACHED_SHARE + TOLERANCE_CRAWLS
    return float(starts[np.argmax(reached)] - changed_at) if reached.any() else None
