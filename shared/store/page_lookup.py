"""From page ids to row numbers: an open-addressing table of integers, millions of look-ups/s.

The table holds rows only, and a column the id of each row: 14 bytes a page in all.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

UNKNOWN = -1
"""Row of a page that is not there."""

_FREE: Final = -1
_DELETED: Final = -2
_SMALLEST: Final = 64
_ROOM: Final = 1.45
"""Places for each page, when the table is made."""

_FULLEST: Final = 0.8
"""Share of places in use or deleted at which the table is made anew."""

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


@compiled
def _first_place(page_id: int, size: int) -> int:
    """Where an id is looked for first; any size of table will do."""
    mixed = (np.uint64(page_id) * _SPREAD) >> _HALF
    return np.int64((mixed * np.uint64(size)) >> _HALF)  # type: ignore[return-value]


@compiled
def _find(table: NDArray[np.int32], ids: NDArray[np.int64], page_id: int) -> int:
    """Place of an id in the table, or -1."""
    place = _first_place(page_id, table.size)
    while table[place] != _FREE:
        if table[place] >= 0 and ids[table[place]] == page_id:
            return place
        place += 1
        if place == table.size:
            place = 0
    return -1


@compiled
def _insert(table: NDArray[np.int32], page_id: int, row: int) -> bool:
    """Put an id where it is not; says whether a free place was used up."""
    place = _first_place(page_id, table.size)
    while table[place] >= 0:
        place += 1
        if place == table.size:
            place = 0
    was_free = bool(table[place] == _FREE)
    table[place] = row
    return was_free


@compiled
def _insert_rows(table: NDArray[np.int32], ids: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
    for row in rows:
        if ids[row] >= 0:
            _insert(table, ids[row], row)


@compiled
def _insert_all(table: NDArray[np.int32], ids: NDArray[np.int64], used: int) -> int:
    """Put every row that has an id into the table; how many they are."""
    count = 0
    for row in range(used):
        if ids[row] >= 0:
            _insert(table, ids[row], row)
            count += 1
    return count


@compiled
def _find_many(
    table: NDArray[np.int32], ids: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int32]:
    found = np.empty(wanted.size, np.int32)
    for k in range(wanted.size):
        place = _find(table, ids, wanted[k])
        found[k] = table[place] if place >= 0 else UNKNOWN
    return found


class PageLookup:
    """Page id → row. Ids are non-negative."""

    def __init__(self, expected: int = 0) -> None:
        self.ids: NDArray[np.int64] = np.empty(max(_SMALLEST, expected), np.int64)
        """By row: the page's id; -1 or, beyond the rows in use, anything: none."""
        self._rows = 0
        """Rows from here on have never been used."""
        self._table = np.full(max(_SMALLEST, int(_ROOM * expected)), _FREE, np.int32)
        self._used = 0
        """Places that are not free: pages and deletions."""

    def add_many(self, page_ids: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add pages that are not there yet, each once."""
        if not page_ids.size:
            return
        self._note_ids(page_ids, rows, int(rows.max()) + 1)
        if not self._made_room(page_ids.size):
            _insert_rows(self._table, self.ids, rows)
            self._used += page_ids.size

    def add(self, page_id: int, row: int) -> None:
        """Add a page that is not there yet."""
        self._note_ids(page_id, row, row + 1)
        if not self._made_room(1):
            self._used += bool(_insert(self._table, page_id, row))

    def remove(self, page_id: int) -> None:
        """Forget a page, if it is there."""
        place = _find(self._table, self.ids, page_id)
        if place >= 0:
            self.ids[self._table[place]] = -1
            self._table[place] = _DELETED

    def find(self, page_id: int) -> int:
        """Row of a page, or `UNKNOWN`."""
        place = _find(self._table, self.ids, page_id)
        return int(self._table[place]) if place >= 0 else UNKNOWN

    def find_many(self, page_ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Rows of pages; `UNKNOWN` where a page is not there."""
        return _find_many(self._table, self.ids, page_ids)

    @property
    def nbytes(self) -> int:
        """Memory in use: the table, and the ids of the rows that have been used."""
        return int(self._table.nbytes + self._rows * self.ids.itemsize)

    def _note_ids(
        self, page_ids: NDArray[np.int64] | int, rows: NDArray[np.int32] | int, end: int
    ) -> None:
        if end > self.ids.size:
            larger = np.empty(max(end, 2 * self.ids.size), np.int64)
            larger[: self._rows] = self.ids[: self._rows]
            self.ids = larger
        if end > self._rows:
            self.ids[self._rows : end] = -1
            self._rows = end
        self.ids[rows] = page_ids

    def _made_room(self, count: int) -> bool:
        """Make the table anew if it is too full for so many more; those with ids are then in."""
        if self._used + count <= _FULLEST * self._table.size:
            return False
        living = int((self.ids[: self._rows] >= 0).sum())
        self._table = np.full(max(_SMALLEST, int(2 * living)), _FREE, np.int32)
        self._used = int(_insert_all(self._table, self.ids, self._rows))
        return True
