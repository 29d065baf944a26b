"""How fast sources may send: token buckets, in bounded memory.

A source is a name in an untrusted message, so anybody can make up as many as they like. Those that
the operator has named have a bucket each, whatever others do. All others have one each as well,
and one more that they share, so that made-up names gain nothing; and where some are named, each
signal of theirs earns the others a part of one, so that rubbish never drowns what is known to be
good: its share bounds the harm (measured by `freshet bench abuse`). At most `MAX_SOURCES` of the
others are watched one by one; when that is not enough, those whose bucket has filled up again are
forgotten, which changes nothing for them, and any further source shares one bucket with all the
others that found no place.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

BURST_SECONDS = 10.0
"""So many seconds' worth of signals may come at once."""

REPORT_SECONDS = 10.0
"""A limit that is exceeded is reported once in so many seconds; the rest is only counted."""

MOST_EARNED = 100.0
"""Signals that the others may have earned and not sent yet."""

MAX_SOURCES = 50_000
"""About 10 MB of buckets."""


class Verdict(Enum):
    """What to do with a signal of a source."""

    PASS = auto()
    DROP = auto()
    REPORT_SOURCE = auto()
    """Over the source's limit, and the first such for a while: somebody should hear of it."""
    REPORT_OTHERS = auto()
    """The same, of the limit that sources share which nobody has named."""


@dataclass(slots=True)
class _Bucket:
    per_second: float
    tokens: float
    filled_at: float
    reported_at: float = -math.inf

    @classmethod
    def full(cls, per_second: float, now: float) -> "_Bucket":
        return cls(per_second, burst_of(per_second), now)

    def take(self, now: float) -> bool:
        if now > self.filled_at:
            gained = (now - self.filled_at) * self.per_second
            self.tokens = min(self.tokens + gained, burst_of(self.per_second))
            self.filled_at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def report_is_due(self) -> bool:
        if self.filled_at - self.reported_at < REPORT_SECONDS:
            return False
        self.reported_at = self.filled_at
        return True


def burst_of(per_second: float) -> float:
    """How many may come at once under a limit."""
    return max(per_second * BURST_SECONDS, 1.0)


class SourceLimiter:
    """Token buckets of all sources. Times are clock seconds, handed in."""

    def __init__(
        self,
        per_second: float,
        *,
        named: Collection[str] = (),
        others_per_second: float = math.inf,
        others_share: float = math.inf,
        max_sources: int = MAX_SOURCES,
    ) -> None:
        """Start with full buckets.

        Args:
            per_second: limit of each source.
            named: sources that the operator knows.
            others_per_second: limit of all other sources together.
            others_share: so many signals may they send together to each signal of a named one;
                does not count where none is named.
            max_sources: how many others are watched one by one.
        """
        self.per_second = per_second
        self.others_per_second = others_per_second
        self.others_share = others_share if named else math.inf
        self._max_sources = max_sources
        self._named = {source: _Bucket.full(per_second, 0.0) for source in named}
        self._buckets: dict[str, _Bucket] = {}
        self._latecomers = _Bucket.full(per_second, 0.0)
        self._others = _Bucket.full(others_per_second, 0.0)
        self._earned = MOST_EARNED
        self._swept_at = -math.inf

    def __len__(self) -> int:
        """How many sources are watched one by one."""
        return len(self._named) + len(self._buckets)

    def take(self, source: str, arrived_at: float) -> Verdict:
        """Take a token for one signal.

        Args:
            source: who says that it sends.
            arrived_at: when the signal arrived, not when it is read: after an outage the backlog
                is not held against anybody. It must never lie in the future, or a source could
                fill its own bucket.
        """
        named = self._named.get(source)
        bucket = named or self._buckets.get(source) or self._new_bucket(source, arrived_at)
        if not bucket.take(arrived_at):
            return Verdict.REPORT_SOURCE if bucket.report_is_due() else Verdict.DROP
        if named is not None:
            self._earned = min(self._earned + self.others_share, MOST_EARNED)
            return Verdict.PASS
        return self._take_of_others(arrived_at)

    def _take_of_others(self, arrived_at: float) -> Verdict:
        if not self._others.take(arrived_at) or self._earned < 1.0:
            return Verdict.REPORT_OTHERS if self._others.report_is_due() else Verdict.DROP
        if self.others_share < math.inf:
            self._earned -= 1.0
        return Verdict.PASS

    def _new_bucket(self, source: str, arrived_at: float) -> _Bucket:
        if len(self._buckets) >= self._max_sources:
            self._forget_full_ones(arrived_at)
        if len(self._buckets) >= self._max_sources:
            return self._latecomers
        bucket = self._buckets[source] = _Bucket.full(self.per_second, arrived_at)
        return bucket

    def _forget_full_ones(self, now: float) -> None:
        # Looking through all of them at every new name would be the very flood's best weapon.
        if now - self._swept_at < BURST_SECONDS / 10:
            return
        self._swept_at = now
        full = burst_of(self.per_second)
        self._buckets = {
            source: bucket
            for source, bucket in self._buckets.items()
            if bucket.tokens + (now - bucket.filled_at) * self.per_second < full
        }
