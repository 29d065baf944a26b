"""How fast sources may send: token buckets, in bounded memory.

A source is a name in an untrusted message, so anybody can make up as many as they like. Those that
the operator has named have a bucket each, whatever others do. All others have one each as well,
and one more that they share, so that made-up names gain nothing; and where some are named, each
signal of theirs earns the others a part of one, so that rubbish never drowns what is known to be
good: its share bounds the harm (measured by `freshet bench abuse`). At most `MAX_SOURCES` of the
others are watched one by one; when that is not enough, those whose bucket has filled up again are
forgotten, which changes nothing for them, and any further source shares one bucket with all the
others that found no place.

After an outage partitions are read one after the other, each a piece of its backlog at a time. A
bucket, which is filled by the time of the latest signal, would be full for the first of them and
empty for those that arrived at the same time in the others. What is read late is therefore counted
by when it arrived (`_Backlog`), in whatever order it comes.
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

LATE_SECONDS = BURST_SECONDS
"""Signals that arrived so long ago are of a backlog. Of less, a full bucket has enough for all."""

MOST_COUNTED = 200_000
"""Sources of a backlog, in ten seconds each: about 30 MB."""

BACKLOG_KEPT_SECONDS = 600.0
"""After so long without a late signal a backlog is over."""

_FURTHER, _OTHERS = "\0further", "\0others"
"""Names that no source can have: of those that find no place, and of all that are not named."""


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

    def report_is_due(self, now: float) -> bool:
        if now - self.reported_at < REPORT_SECONDS:
            return False
        self.reported_at = now
        return True


class _Backlog:
    """What passed of signals that are read late, by who sent them and when they arrived.

    In each ten seconds a source may have sent ten seconds' worth; in as many as one signal takes
    where that is less.
    """

    def __init__(self) -> None:
        self._passed: dict[tuple[str, int], int] = {}
        self._read_at = -math.inf

    def take(self, source: str, per_second: float, arrived_at: float, read_at: float) -> bool:
        self._read_at = read_at
        if math.isinf(per_second):
            return True
        most = burst_of(per_second)
        place = source, int(arrived_at * per_second // most)
        if len(self._passed) >= MOST_COUNTED and place not in self._passed:
            place = _FURTHER, place[1]
        passed = self._passed.get(place, 0)
        if passed + 1 > most:
            return False
        self._passed[place] = passed + 1
        return True

    def forget_if_over(self, now: float) -> None:
        if self._passed and now - self._read_at > BACKLOG_KEPT_SECONDS:
            self._passed.clear()


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
        self._backlog = _Backlog()
        self._swept_at = -math.inf

    def __len__(self) -> int:
        """How many sources are watched one by one."""
        return len(self._named) + len(self._buckets)

    def take(self, source: str, arrived_at: float, read_at: float | None = None) -> Verdict:
        """Take a token for one signal.

        Args:
            source: who says that it sends; printable.
            arrived_at: when the signal arrived, not when it is read: after an outage the backlog
                is not held against anybody. It must never lie in the future, or a source could
                fill its own bucket.
            read_at: when it is read; None: as it arrives.
        """
        now = arrived_at if read_at is None else read_at
        is_late = now - arrived_at > LATE_SECONDS
        named = self._named.get(source)
        bucket = named or self._buckets.get(source) or self._new_bucket(source, arrived_at)
        if is_late:
            passes = self._backlog.take(source, self.per_second, arrived_at, now)
        else:
            self._backlog.forget_if_over(now)
            passes = bucket.take(arrived_at)
        if not passes:
            return Verdict.REPORT_SOURCE if bucket.report_is_due(now) else Verdict.DROP
        if named is not None:
            most = math.inf if is_late else MOST_EARNED
            self._earned = min(self._earned + self.others_share, most)
            return Verdict.PASS
        return self._take_of_others(arrived_at, now, is_late=is_late)

    def _take_of_others(self, arrived_at: float, now: float, *, is_late: bool) -> Verdict:
        passes = self._earned >= 1.0 and (
            self._backlog.take(_OTHERS, self.others_per_second, arrived_at, now)
            if is_late
            else self._others.take(arrived_at)
        )
        if not passes:
            return Verdict.REPORT_OTHERS if self._others.report_is_due(now) else Verdict.DROP
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
