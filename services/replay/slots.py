"""The budget as times: one slot every 1/R days, on through every change of R."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_SLOTS = 100_000_000
"""A replay has each of them in memory several times."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Crawls a day, by steps: from each day on, so many."""

    steps: tuple[tuple[float, float], ...]
    """(day, crawls per day), rising in day, the first at day 0."""

    def __post_init__(self) -> None:
        days = [day for day, _ in self.steps]
        if not self.steps or days[0] != 0 or days != sorted(set(days)):
            raise ValueError(f"budget steps {self.steps} must begin at day 0 and rise in day")
        if any(not 0 <= rate < np.inf for _, rate in self.steps):
            raise ValueError(f"budget steps {self.steps} must have finite rates of 0 or more")

    @classmethod
    def constant(cls, crawls_per_day: float) -> "Budget":
        """The same budget throughout."""
        return cls(((0.0, crawls_per_day),))

    def slot_times(self, days: float) -> NDArray[np.float64]:
        """The days at which a crawl may happen, up to and with `days`.

        The number of slots by day t is the whole part of ∫R: a change of R neither loses nor
        gains a fraction of a slot.

        Raises:
            ValueError: they are too many to be replayed.
        """
        if (crawls := self._crawls(days)) > MOST_SLOTS:
            raise ValueError(
                f"{crawls:g} crawls in {days:g} days are more than can be replayed: "
                f"{MOST_SLOTS:g} at most"
            )
        parts = []
        spent = 0.0
        for number, (day, rate) in enumerate(self.steps):
            end = self.steps[number + 1][0] if number + 1 < len(self.steps) else days
            end = min(end, days)
            if end <= day or rate == 0:
                continue
            total = spent + (end - day) * rate
            # Rounding must not cost the slot that falls on the very end.
            slots = np.arange(np.floor(spent + 1e-9) + 1, np.floor(total + 1e-9) + 1)
            parts.append(np.minimum(day + (slots - spent) / rate, end))
            spent = total
        return np.concatenate(parts) if parts else np.empty(0)

    def mean_rate(self, days: float, since: float = 0.0) -> float:
        """Crawls a day on average, from day `since` on up to `days`; none are before it."""
        return self._crawls(days) / (days - since)

    def _crawls(self, days: float) -> float:
        ends = [*(day for day, _ in self.steps[1:]), days]
        return sum(
            max(min(end, days) - day, 0.0) * rate
            for (day, rate), end in zip(self.steps, ends, strict=True)
        )
