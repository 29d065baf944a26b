"""How fast each sender may send: token buckets, in bounded memory.

A sender is a host, an address or a source. Buckets that nobody has used for longest are forgotten
when there are too many: for a flood of made-up senders, that is as if each were new.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

BURST_SECONDS: Final = 10.0
"""So many seconds' worth may come at once."""

MOST_SENDERS: Final = 100_000
"""About 20 MB of buckets."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Rates:
    """A bucket for each sender. Times are wall seconds, handed in."""

    def __init__(self, per_second: float, most_senders: int = MOST_SENDERS) -> None:
        """Make it, with every bucket full.

        Args:
            per_second: limit of each sender.
            most_senders: buckets that are remembered.
        """
        self.limit(per_second)
        self._most_senders = most_senders
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def limit(self, per_second: float) -> None:
        """Let another limit hold; what buckets have is as it is, but never more than they hold."""
        self.per_second = per_second
        self._burst = max(per_second * BURST_SECONDS, 1.0)

    def wait_for(self, sender: str, count: int, now: float) -> float:
        """Take tokens; 0, or the seconds after which it may be tried again.

        More than a burst may be taken from a full bucket, which then owes the rest: what may be
        sent at all must not be refused for ever.
        """
        bucket = self._buckets.pop(sender, None) or _Bucket(self._burst, now)
        self._buckets[sender] = bucket
        if len(self._buckets) > self._most_senders:
            self._buckets.popitem(last=False)
        gained = max(now - bucket.filled_at, 0.0) * self.per_second
        bucket.tokens = min(bucket.tokens + gained, self._burst)
        bucket.filled_at = now
        missing = min(count, self._burst) - bucket.tokens
        if missing > 0.0:
            return missing / self.per_second
        bucket.tokens -= count
        return 0.0
