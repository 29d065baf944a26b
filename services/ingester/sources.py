"""How fast each source may send: a token bucket per source, in bounded memory.

A source is a name in an untrusted message, so anybody can make up as many as they like. At most
`MAX_SOURCES` are watched one by one; when that is not enough, those whose bucket has filled up
again are forgotten, which changes nothing for them, and any further source shares one bucket with
all the others that found no place.
"""

from dataclasses import dataclass
from enum import Enum, auto

BURST_SECONDS = 10.0
"""So many seconds' worth of signals may come at once."""

REPORT_SECONDS = 10.0
"""A source over its limit is reported once in so many seconds; the rest is only counted."""

MAX_SOURCES = 50_000
"""About 10 MB of buckets."""


class Verdict(Enum):
    """What to do with a signal of a source."""

    PASS = auto()
    DROP = auto()
    DROP_AND_REPORT = auto()
    """Over the limit, and the first such for a while: somebody should hear of it."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
    reported_at: float = float("-inf")


class SourceLimiter:
    """Token buckets of all sources. Times are clock seconds, handed in."""

    def __init__(self, per_second: float, max_sources: int = MAX_SOURCES) -> None:
        self.per_second = per_second
        self.burst = max(per_second * BURST_SECONDS, 1.0)
        self._max_sources = max_sources
        self._buckets: dict[str, _Bucket] = {}
        self._shared = _Bucket(self.burst, 0.0)
        self._swept_at = float("-inf")

    def __len__(self) -> int:
        """How many sources are watched one by one."""
        return len(self._buckets)

    def take(self, source: str, arrived_at: float) -> Verdict:
        """Take a token for one signal.

        Args:
            source: who says that it sends.
            arrived_at: when the signal arrived, not when it is read: after an outage the backlog
                is not held against anybody. It must never lie in the future, or a source could
                fill its own bucket.
        """
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = self._new_bucket(source, arrived_at)
        if arrived_at > bucket.filled_at:
            gained = (arrived_at - bucket.filled_at) * self.per_second
            bucket.tokens = min(bucket.tokens + gained, self.burst)
            bucket.filled_at = arrived_at
        if bucket.tokens >= 1.0:
            bucket.tokens -= 1.0
            return Verdict.PASS
        if bucket.filled_at - bucket.reported_at < REPORT_SECONDS:
            return Verdict.DROP
        bucket.reported_at = bucket.filled_at
        return Verdict.DROP_AND_REPORT

    def _new_bucket(self, source: str, arrived_at: float) -> _Bucket:
        if len(self._buckets) >= self._max_sources:
            self._forget_full_ones(arrived_at)
        if len(self._buckets) >= self._max_sources:
            return self._shared
        bucket = self._buckets[source] = _Bucket(self.burst, arrived_at)
        return bucket

    def _forget_full_ones(self, now: float) -> None:
        # Looking through all of them at every new name would be the very flood's best weapon.
        if now - self._swept_at < BURST_SECONDS / 10:
            return
        self._swept_at = now
        self._buckets = {
            source: bucket
            for source, bucket in self._buckets.items()
            if bucket.tokens + (now - bucket.filled_at) * self.per_second < self.burst
        }
