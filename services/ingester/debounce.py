"""Forgetting what was just said: repeated signals of a source for a page count once.

A set-associative table of fixed size on 64-bit hashes, written through a compiled loop: 32 MB hold
two million (source, page) pairs, so the defaults remember 20,000 signals a second for a minute.
Where a bucket is full, its oldest entry goes; the worst that follows is a repeated signal that
passes.
"""

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

ENTRIES = 1 << 21
_WAYS = 8
"""Entries of a bucket; a bucket's hashes fill one cache line."""


@compiled
def _mark_repeated(
    hashes: NDArray[np.uint64],
    times: NDArray[np.float64],
    window: float,
    known: NDArray[np.uint64],
    known_at: NDArray[np.float64],
) -> NDArray[np.bool_]:
    repeated = np.zeros(hashes.size, np.bool_)
    mask = np.uint64(known.shape[0] - 1)
    for i in range(hashes.size):
        bucket = hashes[i] & mask
        place = 0
        found = False
        for way in range(known.shape[1]):
            if known[bucket, way] == hashes[i] and known_at[bucket, way] > -np.inf:
                place = way
                found = True
                break
            if known_at[bucket, way] < known_at[bucket, place]:
                place = way
        repeated[i] = found and abs(times[i] - known_at[bucket, place]) < window
        if not repeated[i]:
            known[bucket, place] = hashes[i]
            known_at[bucket, place] = times[i]
    return repeated


class Debouncer:
    """Remembers when each (source, page) was last let through."""

    def __init__(self, window_seconds: float, entries: int = ENTRIES) -> None:
        """Make an empty table.

        Args:
            window_seconds: a signal closer than this to the last one that passed is repeated.
            entries: how many pairs are remembered; a power of two, at least 8.

        Raises:
            ValueError: `entries` is not a power of two, or less than 8.
        """
        if entries < _WAYS or entries & (entries - 1):
            raise ValueError(f"entries is {entries}: give a power of two, at least {_WAYS}")
        self._window = window_seconds
        self._known = np.zeros((entries // _WAYS, _WAYS), np.uint64)
        self._known_at = np.full((entries // _WAYS, _WAYS), -np.inf)
        # Loads the compiled loop now: the first batch must not wait a second for it.
        self.repeated(np.empty(0, np.uint64), np.empty(0))

    def repeated(self, hashes: NDArray[np.uint64], times: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which signals repeat one before them; the others are remembered.

        Args:
            hashes: of (source, page), well mixed in all bits.
            times: when each was observed, seconds.

        Returns:
            a mask of the same length.
        """
        return _mark_repeated(hashes, times, self._window, self._known, self._known_at)
