"""URLs in one growing piece of memory: a hundred bytes a page, and no Python object each."""

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

_SMALLEST: Final = 4096


class UrlArena:
    """The URL of each row.

    What is forgotten stays until there is as much of it as of what is needed: then it is dropped.
    """

    def __init__(self, rows: int = 0) -> None:
        self._data: NDArray[np.uint8] = np.empty(_SMALLEST, np.uint8)
        self._size = 0
        self._forgotten = 0
        self._starts: NDArray[np.int64] = np.empty(max(rows, 16), np.int64)
        self._lengths: NDArray[np.int32] = np.zeros(max(rows, 16), np.int32)

    @classmethod
    def load(cls, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Self:
        """Take over the URLs of rows 0, 1, …: `data[offsets[row]:offsets[row + 1]]`."""
        arena = cls(offsets.size - 1)
        arena._data, arena._size = data, data.size
        arena._starts[: offsets.size - 1] = offsets[:-1]
        arena._lengths[: offsets.size - 1] = np.diff(offsets)
        return arena

    @property
    def size(self) -> int:
        """Bytes in use, forgotten ones included."""
        return self._size

    def set(self, row: int, url: bytes) -> None:
        """Keep the URL of a row."""
        start, end = self._size, self._size + len(url)
        if end > self._data.size:
            larger = np.empty(max(end, self._data.size * 2), np.uint8)
            larger[:start] = self._data[:start]
            self._data = larger
        self._data[start:end] = np.frombuffer(url, np.uint8)
        self._size = end
        if row >= self._starts.size:
            more = max(row + 1, 2 * self._starts.size) - self._starts.size
            self._starts = np.concatenate([self._starts, np.empty(more, np.int64)])
            self._lengths = np.concatenate([self._lengths, np.zeros(more, np.int32)])
        self._starts[row] = start
        self._lengths[row] = len(url)

    def get(self, row: int) -> str:
        """The URL of a row."""
        start = int(self._starts[row])
        return self._data[start : start + int(self._lengths[row])].tobytes().decode()

    def get_many(self, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """The URLs of some rows."""
        data = self._data
        starts = self._starts[rows]
        ends = starts + self._lengths[rows]
        return [
            data[start:end].tobytes().decode()
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]

    def forget(self, row: int) -> None:
        """A row needs its URL no more."""
        self._forgotten += int(self._lengths[row])
        self._lengths[row] = 0
        if 2 * self._forgotten > self._size:
            self._compact()

    def _compact(self) -> None:
        rows = np.flatnonzero(self._lengths)
        starts, lengths = self._starts[rows], self._lengths[rows]
        parts = [self._data[s : s + n] for s, n in zip(starts, lengths, strict=True)]
        self._data = np.concatenate([*parts, np.empty(_SMALLEST, np.uint8)])
        ends = np.cumsum(lengths, dtype=np.int64)
        self._starts[rows] = ends - lengths
        self._size = int(ends[-1]) if ends.size else 0
        self._forgotten = 0
