"""From page ids to row numbers: an open-addressing table of integers, millions of look-ups/s."""

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

UNKNOWN = -1
"""Row of a page that is not there."""

_FREE = -1
_DELETED = -2
_SMALLEST = 64


@compiled
def _find(ids: NDArray[np.int64], page_id: int) -> int:
    """Place of an id in the table, or -1."""
    mask = ids.size - 1
    place = page_id & mask
    while ids[place] != _FREE:
        if ids[place] == page_id:
            return place
        place = (place + 1) & mask
    return -1


@compiled
def _insert(ids: NDArray[np.int64], rows: NDArray[np.int32], page_id: int, row: int) -> bool:
    """Put an id where it is not; says whether a free place was used up."""
    mask = ids.size - 1
    place = page_id & mask
    while ids[place] >= 0:
        place = (place + 1) & mask
    was_free = bool(ids[place] == _FREE)
    ids[place] = page_id
    rows[place] = row
    return was_free


@compiled
def _insert_many(
    ids: NDArray[np.int64],
    rows: NDArray[np.int32],
    new_ids: NDArray[np.int64],
    new_rows: NDArray[np.int32],
) -> None:
    for k in range(new_ids.size):
        if new_ids[k] >= 0:
            _insert(ids, rows, new_ids[k], new_rows[k])


@compiled
def _find_many(
    ids: NDArray[np.int64], rows: NDArray[np.int32], wanted: NDArray[np.int64]
) -> NDArray[np.int32]:
    found = np.empty(wanted.size, np.int32)
    for k in range(wanted.size):
        place = _find(ids, wanted[k])
        found[k] = rows[place] if place >= 0 else UNKNOWN
    return found


class PageLookup:
    """Page id → row. Ids are hashes, non-negative, so their low bits are as good as any hash."""

    def __init__(self, expected: int = 0) -> None:
        self._allocate(expected)

    def _allocate(self, expected: int) -> None:
        size = max(_SMALLEST, 1 << int(2 * expected).bit_length())
        self._ids = np.full(size, _FREE, np.int64)
        self._rows = np.zeros(size, np.int32)
        self._used = 0
        """Places that are not free: pages and deletions."""

    def add_many(self, page_ids: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add pages that are not there yet, each once."""
        self._make_room(page_ids.size)
        _insert_many(self._ids, self._rows, page_ids, rows)
        self._used += page_ids.size

    def add(self, page_id: int, row: int) -> None:
        """Add a page that is not there yet."""
        self._make_room(1)
        self._used += bool(_insert(self._ids, self._rows, page_id, row))

    def remove(self, page_id: int) -> None:
        """Forget a page, if it is there."""
        place = _find(self._ids, page_id)
        if place >= 0:
            self._ids[place] = _DELETED

    def find(self, page_id: int) -> int:
        """Row of a page, or `UNKNOWN`."""
        place = _find(self._ids, page_id)
        return int(self._rows[place]) if place >= 0 else UNKNOWN

    def find_many(self, page_ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Rows of pages; `UNKNOWN` where a page is not there."""
        return _find_many(self._ids, self._rows, page_ids)

    def _make_room(self, count: int) -> None:
        if 3 * (self._used + count) <= 2 * self._ids.size:
            return
        ids, rows = self._ids, self._rows
        living = ids >= 0
        self._allocate(int(living.sum()) + count)
        self._used = int(living.sum())
        _insert_many(self._ids, self._rows, ids[living], rows[living])
