"""How often a host may be crawled: token buckets, and hosts that asked for a pause.

A bucket holds two tokens, so in any window of w seconds a host is crawled at most 2 + w·rate
times. Times are clock seconds.
"""

import math
from typing import Any, Final

import numpy as np

from services.scheduler.learned import LearnedHosts
from services.scheduler.pages import HOST, NEVER, Rows, grown
from shared.policy.compiled import compiled

DEPTH: Final = 2.0
"""Tokens that a bucket holds."""

_MEMORY: Final = 0.2
"""Weight of the newest crawl in a host's typical crawl value."""


@compiled
def usable_from(host: Any) -> float:
    """From when on the host may be crawled."""
    if not host.rate > 0.0:
        return math.inf
    ready: float = host.blocked_until
    if host.tokens < 1.0:
        ready = max(ready, host.filled_at + (1.0 - host.tokens) / host.rate)
    return ready


@compiled
def refill(host: Any, now: float) -> None:
    """Bring a bucket up to date."""
    if now > host.filled_at:
        if host.rate > 0.0:
            host.tokens = min(DEPTH, host.tokens + (now - host.filled_at) * host.rate)
        host.filled_at = now


@compiled
def take_token(host: Any, now: float) -> None:
    """Account for a crawl."""
    refill(host, now)
    host.tokens = max(host.tokens - 1.0, 0.0)


@compiled
def note_value(host: Any, value: float) -> None:
    """Remember what a crawled page was worth: the host's multiplier is read off it."""
    host.typical_value += _MEMORY * (value - host.typical_value)


@compiled
def capacity(host: Any, start: float, end: float) -> float:
    """Crawls that a host can take in [start, end]."""
    begin = max(start, host.blocked_until)
    if begin > end or not host.rate > 0.0:
        return 0.0
    tokens = min(DEPTH, host.tokens + max(begin - host.filled_at, 0.0) * host.rate)
    crawls: float = math.floor(tokens + (end - begin) * host.rate + 1e-6)
    return crawls


class Hosts:
    """The hosts of a shard: names, limits, buckets, and what was learned of them."""

    def __init__(self, default_rate: float) -> None:
        self._default_rate = default_rate
        self.rows: Rows = np.zeros(64, HOST)
        self.names: list[str] = []
        self.keys: list[bytes] = []
        """The names as record keys."""
        self.learned = LearnedHosts()
        self.learned.reserve(self.rows.size)
        self._index: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """Number of a host, if it is known."""
        return self._index.get(name)

    def intern(self, name: str) -> int:
        """Number of a host, which is made known with the default limit."""
        index = self._index.get(name)
        if index is not None:
            return index
        index = len(self.names)
        if index == self.rows.size:
            self.rows = grown(self.rows, 2 * index, np.zeros(index, HOST))
            self.learned.reserve(self.rows.size)
        self.names.append(name)
        self.keys.append(name.encode())
        self._index[name] = index
        row = self.rows[index]
        row["rate"] = self._default_rate
        row["tokens"] = DEPTH
        row["filled_at"] = row["blocked_until"] = NEVER
        return index

    def set_limit(self, index: int, rate: float | None, now: float) -> None:
        """Change how often a host may be crawled (per second); None: the default."""
        row = self.rows[index]
        refill(row, now)
        row["rate"] = self._default_rate if rate is None else rate
        row["own_limit"] = rate is not None

    def set_block(self, index: int, until: float | None) -> None:
        """Leave a host alone until a time; None: no longer."""
        self.rows[index]["blocked_until"] = NEVER if until is None else until
