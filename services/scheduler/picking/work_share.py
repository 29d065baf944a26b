"""How much of the work that may wait a shard does at a tick: the shards of a process share it."""

from dataclasses import dataclass
from typing import Final

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

    @classmethod
    def of(cls, shards: int) -> "WorkShare":
        """Of one of so many shards in a process."""
        return cls(max(1.0 / max(shards, 1), _LEAST_PART))

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
