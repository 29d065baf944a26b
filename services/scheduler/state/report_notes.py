"""What a shard notes for its next report to the coordinator."""

import math


class ReportNotes:
    """Counts since the shard was loaded, and since they were taken."""

    def __init__(self) -> None:
        self.answered = 0
        self.held_slots = 0
        self.unused_slots = 0
        """Since the shard was loaded: answers, and slots left empty as the crawlers are behind, or
        as no page is to be crawled."""
        self._reported = (0, 0, 0)
        self._crawls = 0
        self._least_crawled = math.inf
        self._marginal_value = 0.0

    def note_crawls(self, crawls: int, least_value: float) -> None:
        """Remember so many picks, and the least value of those by value."""
        self._crawls += crawls
        self._least_crawled = min(self._least_crawled, least_value)

    def take_fleet_notes(self) -> tuple[int, int, int]:
        """Since the last call: requests answered, slots held back, slots without a page."""
        answered, held, unused = self._reported
        self._reported = self.answered, self.held_slots, self.unused_slots
        return self.answered - answered, self.held_slots - held, self.unused_slots - unused

    def take_crawl_notes(self) -> tuple[int, float]:
        """Picks since the last call, and the crawl value of the least valuable of late."""
        crawls, self._crawls = self._crawls, 0
        if self._least_crawled < math.inf:
            self._marginal_value, self._least_crawled = self._least_crawled, math.inf
        return crawls, self._marginal_value
