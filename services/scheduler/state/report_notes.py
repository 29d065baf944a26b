"""What a shard notes for its next report to the coordinator."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.contracts.fields import Reason

REASONS: Final[tuple[Reason, ...]] = ("value", "retry", "max-age", "new", "urgent")
"""By tier (`picking.priority`)."""


class ReportNotes:
    """Counts since the shard was loaded, and since they were taken."""

    def __init__(self) -> None:
        self.answered = 0
        self.held_slots = 0
        self.unused_slots = 0
        """Since the shard was loaded: answers, and slots left empty as the crawlers are behind, or
        as no page is to be crawled."""
        self._reported = (0, 0, 0)
        self._by_tier = np.zeros(0, np.int64)
        self._least_crawled = math.inf
        self._marginal_value = 0.0

    def note_crawls(self, by_tier: NDArray[np.int64], least_value: float) -> None:
        """Remember so many picks of each tier, and the least value of those by value."""
        self._by_tier = self._by_tier + by_tier if self._by_tier.size else by_tier
        self._least_crawled = min(self._least_crawled, least_value)

    def take_fleet_notes(self) -> tuple[int, int, int]:
        """Since the last call: requests answered, slots held back, slots without a page."""
        answered, held, unused = self._reported
        self._reported = self.answered, self.held_slots, self.unused_slots
        return self.answered - answered, self.held_slots - held, self.unused_slots - unused

    def take_crawl_notes(self) -> tuple[list[int], float]:
        """Picks of each tier since the last call, or none at all; and the crawl value of the least
        valuable of late."""
        by_tier, self._by_tier = self._by_tier.tolist(), np.zeros(0, np.int64)
        if self._least_crawled < math.inf:
            self._marginal_value, self._least_crawled = self._least_crawled, math.inf
        return by_tier, self._marginal_value
