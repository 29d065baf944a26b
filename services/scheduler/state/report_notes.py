"""What a shard notes for its next report to the coordinator."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.contracts.fields import Reason
from shared.store.class_numbers import MOST_CLASSES

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
        self.answered_elsewhere = 0
        """Answers that came here to requests of shards into which this one was split."""
        self.was_interrupted = False
        """Whether it could not be picked from at times since the last report, whatever it has."""
        self._stepped = 0.0
        self._reported = (0, 0, 0)
        self._by_tier = np.zeros(len(REASONS), np.int64)
        self._by_class = np.zeros(MOST_CLASSES + 1, np.int64)
        self._least_crawled = math.inf
        self._marginal_value = 0.0

    @property
    def answers(self) -> tuple[int, int]:
        """Since the shard was loaded: to its own requests, and to those of others."""
        return self.answered, self.answered_elsewhere

    def note_crawls(self, by_tier: NDArray[np.int64], least_value: float) -> None:
        """Remember so many picks of each tier, and the least value of those by value."""
        self._by_tier += by_tier
        self._least_crawled = min(self._least_crawled, least_value)

    def note_classes(self, by_class: NDArray[np.int64]) -> None:
        """Remember so many picks of each class of pages."""
        self._by_class += by_class

    def take_back(self, by_tier: NDArray[np.int64], by_class: NDArray[np.int64]) -> None:
        """Forget so many picks of each tier, and class: nothing comes of them. What was told of
        them already is left out of the next ones."""
        self._by_tier -= by_tier
        self._by_class -= by_class

    def take_class_notes(self) -> NDArray[np.int64]:
        """Picks of each class since the last call, by number."""
        by_class = np.maximum(self._by_class, 0)
        self._by_class -= by_class
        return by_class

    def take_fleet_notes(self) -> tuple[int, int, int]:
        """Since the last call: requests answered, slots held back, slots without a page."""
        answered, held, unused = self._reported
        self._reported = self.answered, self.held_slots, self.unused_slots
        return self.answered - answered, self.held_slots - held, self.unused_slots - unused

    def note_step(self, seconds: float) -> None:
        """Remember that the clock was set by so much: until then times were other ones."""
        self._stepped += seconds
        self.was_interrupted = True

    def take_step(self) -> float:
        """By how many seconds the clock was set since the last call."""
        stepped, self._stepped = self._stepped, 0.0
        return stepped

    def take_interruption(self) -> bool:
        """Whether the picking was interrupted since the last call."""
        was_interrupted, self.was_interrupted = self.was_interrupted, False
        return was_interrupted

    def take_crawl_notes(self) -> tuple[list[int], float]:
        """Picks of each tier since the last call; and the crawl value of the least valuable of
        late."""
        by_tier = np.maximum(self._by_tier, 0)
        self._by_tier -= by_tier
        if self._least_crawled < math.inf:
            self._marginal_value, self._least_crawled = self._least_crawled, math.inf
        return by_tier.tolist(), self._marginal_value
