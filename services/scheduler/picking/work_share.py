"""How much of the work that may wait a shard does at a tick: the shards of a process share it."""

import math
from dataclasses import dataclass
from typing import Final

from shared.policy.compiled import compiled

_FEW_PAGES: Final = 32_768
"""So many are placed anew at once, in some tens of milliseconds."""

_SLICE: Final = 10_000
"""Pages that are placed anew at a tick at least, or shed at most; some milliseconds."""

_LEAST_HOST_SLICE: Final = 2_000
"""The same of large hosts whose pens are being filled: few shards have such at a time, and their
pens are to last until then."""

_SAMPLED: Final = 50_000
"""Pages that tell how far to lower the guard, where pages are many."""

_LEAST_PART: Final = 1 / 32
"""Less would take too long, or say too little."""


@dataclass(frozen=True, slots=True)
class WorkShare:
    """Of one shard."""

    part: float = 1.0
    """Of what the one thread does for all its shards."""
    phase: float = 0.0
    """What is done again and again is done so much of its period later than by the first shard."""

    @classmethod
    def of(cls, shards: int, place: int) -> "WorkShare":
        """Of one of so many shards in a process, the first of which has place 0."""
        return cls(max(1.0 / max(shards, 1), _LEAST_PART), place / max(shards, 1))

    @property
    def few_pages(self) -> int:
        """So many are placed anew at once."""
        return round(self.part * _FEW_PAGES)

    @property
    def slice(self) -> int:
        """Pages that are placed anew at a tick at least, or shed at most."""
        return round(self.part * _SLICE)

    @property
    def host_slice(self) -> int:
        """Pages of large hosts that are placed anew at a tick."""
        return max(self.slice, _LEAST_HOST_SLICE)

    @property
    def sampled(self) -> int:
        """Pages that tell how far to lower the guard."""
        return round(self.part * _SAMPLED)


@dataclass(slots=True)
class Turn:
    """Of what a shard does once a period, as long as there is cause for it at each tick."""

    period: float
    """Clock seconds."""
    waits: bool = False
    """There has been cause for it for less than a period: others of the process may have it since
    the same tick, and do it one after the other."""
    _from: float = -math.inf
    _asked_at: float = -math.inf

    def has_come(self, now: float, phase: float) -> bool:
        """There is cause for it: whether it is done now. It is the next time, too, unless it is put
        off."""
        is_new, self._asked_at = now > self._asked_at + 2 * self.period, now
        if is_new and phase > 0.0 and not self.waits:
            self.waits, self._from = True, next_turn(now, self.period, phase)
        if now < self._from:
            return False
        self.waits = False
        return True

    def put_off(self, now: float, phase: float) -> None:
        """It was done: not again within the period, about."""
        self._from = next_turn(now, self.period, phase)


@compiled
def next_turn(now: float, period: float, phase: float) -> float:
    """When something is done again that is done once a period: after `now`."""
    return (math.floor(now / period - phase) + 1.0 + phase) * period
