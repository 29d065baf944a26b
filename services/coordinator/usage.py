"""What shards make of the slots that they are given. Pure.

A shard that cannot fill its slots (all its hosts are at their limits, its process is slow or is
starting) says so only by what it crawls. Slots and reports are not of the same moment: a tick more
or less is in every report. So what is missing is added up (a cumulative sum test): noise cancels
out, a real shortfall grows until it is beyond doubt, a large one within a report or two. The shard
then gets no more than it has shown that it can use, and a little on top, to learn whether it can
use more; what it fills to the end is doubled. The little is a part of what it can use, but never so
little that nothing could be learned from it in time: of a shard that has one slot in ten seconds, a
fiftieth would not be told from noise in an hour. Where it is tried in vain, it becomes less.
"""

import math
from dataclasses import dataclass
from typing import Final

SLACK: Final = 0.005
"""A shortfall below this share of the slots is none."""

NOISE_SECONDS: Final = 0.3
"""A report may be off by the slots of so long (wall): ticks, and multipliers that came late."""

NOISE_CRAWLS: Final = 3.0

FIRST_PROBE: Final = 0.02
"""So much more than it can use a shard is given, to see whether it can use that."""

FIRST_TRY: Final = 0.3
"""... and this many slots per second (wall) at least: five seconds tell whether it fills them."""

LEAST_TRY: Final = 0.05
"""A shard that never fills more is given this much more at least."""

TRIED_CRAWLS: Final = 1.5
"""So many crawls beyond what it was seen to make, and beyond `NOISE_SECONDS`, are no noise. A shard
that is given too much for it is found out as before."""

IDLE_SECONDS: Final = 30.0
"""A limit that has not mattered for so long (wall) is forgotten."""

NEWS: Final = 1.1
"""A shard whose hosts let so many times more through than when its limit was found tries anew."""

_MEMORY_SECONDS: Final = 5.0
"""Wall: the rates of slots and crawls are those of about the last so many seconds."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a shard made of its slots between two reports."""

    slots: float
    """That it had."""
    crawls: float
    """That it made."""
    held: float = 0.0
    """Slots that it left empty because the crawlers are behind."""
    answered: float = 0.0
    """Requests that the crawlers answered."""
    unused: float = 0.0
    """Slots that it left empty because no page was to be crawled."""


@dataclass(slots=True)
class Usage:
    """One shard's slots and crawls."""

    usable: float = math.inf
    """Crawls per second of the wall that the shard was seen to be able to make; infinite: as many
    as it was given so far."""
    probe: float = FIRST_PROBE
    attempt: float = FIRST_TRY
    """Slots per second that it has on top at least."""
    slots_rate: float = 0.0
    """Slots per second of the wall that it had of late."""
    crawls_rate: float = 0.0
    """Crawls per second of the wall, of the same time."""
    held_rate: float = 0.0
    """Slots per second of the wall that were left empty because the crawlers are behind."""
    answered_rate: float = 0.0
    """Answers of crawlers per second of the wall."""
    unused_rate: float = 0.0
    """Slots per second of the wall that were left empty because no page was to be crawled."""
    _weight: float = 0.0
    _missing: float = 0.0
    """Slots that were not filled, beyond the slack; never below 0."""
    _missing_seconds: float = 0.0
    """Since nothing was missing."""
    _missing_crawls: float = 0.0
    _beyond: float = 0.0
    """Crawls, beyond what the shard was seen to make, since that was seen."""
    _idle_seconds: float = 0.0
    _through: float = 0.0
    """What its hosts let through when the limit was found, crawls per second of the clock."""

    @property
    def limit(self) -> float:
        """The most that it is given, crawls per second of the wall."""
        return self.usable + max(self.usable * self.probe, self.attempt)

    @property
    def ratio(self) -> float:
        """Crawls per slot of late; 1 without slots."""
        return self.crawls_rate / self.slots_rate if self.slots_rate > 0 else 1.0

    def observe(
        self, seconds: float, made: Made, through: float, *, counts_unused: bool = False
    ) -> bool:
        """Take what happened between two reports.

        Args:
            seconds: between them, of the wall.
            made: what the shard made of its slots in this time.
            through: the most that its hosts let through, crawls per second of the clock.
            counts_unused: slots are left empty where no page is worth λ₀: those count as if they
                were filled.

        Returns:
            whether it turned out that the shard can use markedly less than was thought.
        """
        if seconds <= 0:
            return False
        self.remember(seconds, made)
        # What waits for the crawlers says nothing about the shard. Where all of it does, what is
        # left may be below 0: a report is off by a part of all slots, those that wait too.
        slots, crawls = made.slots - made.held, made.crawls
        if counts_unused:
            # Else λ₀ would follow them down: less and less could be used, so less was worth a slot.
            crawls += made.unused
        if math.isfinite(self.usable) and through > NEWS * self._through:
            self._lift()
        noise = NOISE_CRAWLS + NOISE_SECONDS * made.slots / seconds
        self._count_missing(seconds, slots, crawls)
        if self._missing > noise:
            return self._limit_to(self._missing_crawls / self._missing_seconds, through)
        if math.isfinite(self.usable):
            self._look_further(seconds, max(slots, 0.0), crawls)
        return False

    def remember(self, seconds: float, made: Made) -> None:
        """Count slots and crawls without judging by them (see `observe`); `seconds` above 0."""
        keep = math.exp(-seconds / _MEMORY_SECONDS)
        weight = keep * self._weight + seconds
        before = keep * self._weight
        self.slots_rate = (before * self.slots_rate + made.slots) / weight
        self.crawls_rate = (before * self.crawls_rate + made.crawls) / weight
        self.held_rate = (before * self.held_rate + made.held) / weight
        self.answered_rate = (before * self.answered_rate + made.answered) / weight
        self.unused_rate = (before * self.unused_rate + made.unused) / weight
        self._weight = weight

    def _count_missing(self, seconds: float, slots: float, crawls: float) -> None:
        self._missing += slots * (1.0 - SLACK) - crawls
        self._missing_seconds += seconds
        self._missing_crawls += crawls
        if self._missing <= 0:
            self._missing = self._missing_seconds = self._missing_crawls = 0.0

    def _limit_to(self, usable: float, through: float) -> bool:
        is_news = usable < 0.9 * self.usable
        if math.isfinite(self.usable):
            self.attempt = max(0.5 * self.attempt, LEAST_TRY)
        self.usable, self.probe, self._through = usable, FIRST_PROBE, through
        self._missing = self._missing_seconds = self._missing_crawls = 0.0
        self._beyond = self._idle_seconds = 0.0
        return is_news

    def _look_further(self, seconds: float, slots: float, crawls: float) -> None:
        """Nothing is missing for certain: see whether that says anything about the limit."""
        self._idle_seconds += seconds
        if slots > 0.9 * self.usable * seconds:
            self._idle_seconds = 0.0
        self._beyond = max(self._beyond + crawls - self.usable * seconds, 0.0)
        if self._beyond > TRIED_CRAWLS + NOISE_SECONDS * slots / seconds:
            given = slots / seconds
            self.probe = 1.0 if given > 2.0 * self.usable else min(2.0 * self.probe, 1.0)
            self.attempt *= 2.0
            self.usable = max(given, self.usable)
            self._beyond = 0.0
        if self._idle_seconds > IDLE_SECONDS:
            self._lift()

    def _lift(self) -> None:
        self.usable, self.probe, self.attempt = math.inf, FIRST_PROBE, FIRST_TRY
        self._missing = self._missing_seconds = self._missing_crawls = 0.0
        self._beyond = self._idle_seconds = 0.0
