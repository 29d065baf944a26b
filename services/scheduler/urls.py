"""URLs in one growing piece of memory: a hundred bytes a page, and no Python object each."""

import numpy as np
from numpy.typing import NDArray

_SMALLEST = 4096


class UrlArena:
    """Appends URLs and finds them again by where they start.

    What is forgotten stays until `compact`: pages come and go rarely.
    """

    def __init__(self, data: NDArray[np.uint8] | None = None) -> None:
        self._size = 0 if data is None else data.size
        self._data = np.empty(max(_SMALLEST, self._size), np.uint8)
        if data is not None:
            self._data[: data.size] = data
        self.forgotten = 0
        """Bytes that no page needs any more."""

    @property
    def size(self) -> int:
        """Bytes in use, forgotten ones included."""
        return self._size

    def add(self, url: bytes) -> int:
        """Keep a URL.

        Returns:
            where it starts.
        """
        start, end = self._size, self._size + len(url)
        if end > self._data.size:
            larger = np.empty(max(end, 2 * self._data.size), np.uint8)
            larger[:start] = self._data[:start]
            self._data = larger
        self._data[start:end] = np.frombuffer(url, np.uint8)
        self._size = end
        return start

    def get(self, start: int, length: int) -> bytes:
        """The URL at a place."""
        return self._data[start : start + length].tobytes()

    def get_many(self, starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> list[str]:
        """The URLs at some places, as text."""
        return [
            self._data[start : start + length].tobytes().decode()
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]

    def compact(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int32]
    ) -> tuple["UrlArena", NDArray[np.int64]]:
        """Only the URLs that are still needed.

        Returns:
            a new arena, and where each URL starts there.
        """
        arena = UrlArena()
        parts = [self._data[s : s + n] for s, n in zip(starts, lengths, strict=True)]
        if parts:
            joined = np.concatenate(parts)
            arena = UrlArena(joined)
        ends = np.cumsum(lengths, dtype=np.int64)
        return arena, ends - lengths
