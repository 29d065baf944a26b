"""URLs in one growing piece of memory: a hundred bytes a page, and no Python object each."""

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.reserved import grown, reserved

_SMALLEST: Final = 4096
_FEW_ROWS: Final = 16
_RESERVED: Final = 1 << 34
"""Bytes of addresses for URLs that come after loading."""


@compiled
def _gather(
    loaded: NDArray[np.uint8],
    added: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    gathered: NDArray[np.uint8],
) -> None:
    """Copy the URLs of all rows to one place, and let their rows begin there."""
    end = 0
    for row in range(starts.size):
        start = starts[row]
        source = loaded
        if start >= loaded.size:
            source = added
            start -= loaded.size
        for byte in range(lengths[row]):
            gathered[end + byte] = source[start + byte]
        starts[row] = end
        end += lengths[row]


class UrlArena:
    """The URL of each row.

    What is forgotten stays until there is as much of it as of what is needed: then it is dropped.
    """

    def __init__(self) -> None:
        self._loaded: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._added: NDArray[np.uint8] = np.empty(_SMALLEST, np.uint8)
        """Follows after `_loaded`."""
        self._size = 0
        self._forgotten = 0
        self._rows = 0
        """Rows from here on have never been used."""
        self._starts: NDArray[np.int64] = reserved(_FEW_ROWS, np.int64)
        self._lengths: NDArray[np.int32] = reserved(_FEW_ROWS, np.int32)

    @classmethod
    def load(
        cls,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int32],
        rows: int,
    ) -> Self:
        """Take over the URLs of rows 0, 1, …: `data[starts[row]:starts[row] + lengths[row]]`.

        Args:
            data: may have others in it; copied only if they are more than half.
            starts: by row; there may be room for more of them. Kept, as all of these are.
            lengths: the same.
            rows: how many.
        """
        arena = cls()
        arena._loaded, arena._size, arena._rows = data, data.size, rows
        arena._starts, arena._lengths = starts, lengths
        arena._forgotten = data.size - int(lengths[:rows].sum())
        arena._tidy()
        return arena

    @property
    def columns(
        self,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]:
        """For kernels: what was loaded, what follows after it, and where each URL begins and how
        long it is. All of it only until another one comes."""
        return self._loaded, self._added, self._starts, self._lengths

    @property
    def size(self) -> int:
        """Bytes in use, forgotten ones included."""
        return self._size

    def set(self, row: int, url: bytes) -> None:
        """Keep the URL of a row."""
        start, end = self._size, self._size + len(url)
        place, needed = start - self._loaded.size, end - self._loaded.size
        if needed > self._added.size:
            size = max(needed, self._added.size * 2)
            larger = reserved(size, np.uint8, wanted=max(_RESERVED, size))
            larger[:place] = self._added[:place]
            self._added = larger
        self._added[place:needed] = np.frombuffer(url, np.uint8)
        self._size = end
        if row >= self._starts.size:
            more = max(row + 1, 2 * self._starts.size)
            self._starts = grown(self._starts, more, used=self._rows)
            self._lengths = grown(self._lengths, more, used=self._rows)
        self._rows = max(self._rows, row + 1)
        self._starts[row] = start
        self._lengths[row] = len(url)

    def get(self, row: int) -> str:
        """The URL of a row."""
        return self.get_many([row])[0]

    def get_many(self, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """The URLs of some rows."""
        starts, lengths = self._starts[rows].tolist(), self._lengths[rows].tolist()
        loaded, added, split = self._loaded, self._added, self._loaded.size
        return [
            (
                loaded[start : start + length]
                if start < split
                else added[start - split : start - split + length]
            )
            .tobytes()
            .decode()
            for start, length in zip(starts, lengths, strict=True)
        ]

    def forget(self, row: int) -> None:
        """A row needs its URL no more."""
        self._forgotten += int(self._lengths[row])
        self._lengths[row] = 0
        self._tidy()

    def _tidy(self) -> None:
        """Drop what is forgotten, if it is more than half."""
        if 2 * self._forgotten <= self._size:
            return
        needed = self._size - self._forgotten
        size = max(2 * needed, _SMALLEST)
        gathered = reserved(size, np.uint8, wanted=max(_RESERVED, size))
        starts, lengths = self._starts[: self._rows], self._lengths[: self._rows]
        _gather(self._loaded, self._added, starts, lengths, gathered)
        self._loaded, self._added = np.empty(0, np.uint8), gathered
        self._size, self._forgotten = needed, 0
