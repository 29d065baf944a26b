"""From page ids to row numbers, millions of look-ups a second.

Pages that are loaded in the order of their ids need no table: ids are evenly spread hashes, so a
few of them share their first bits, and a directory says in which rows these are: 8.5 bytes a page
in all, the id's own 8 among them. Other pages are in a hash table, which grows without a stall: 13
to 18 bytes.
"""

from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.growing_table import UNKNOWN, GrowingTable, find_row
from shared.store.prefetch import AHEAD, prefetch
from shared.store.reserved import grown, reserved

__all__ = ["UNKNOWN", "PageLookup"]

_NO_PAGE: Final = -1
"""Id of a row without a page."""

_SMALLEST: Final = 64
_IN_GROUP: Final = 8
"""Pages in a group of the directory, on average: the ids of a cache line."""

_MOST_IN_GROUP: Final = 64
"""Where ids are spread so unevenly that a group has more, the table has them all."""

_BITS_BELOW: Final = 31
_BITS_ABOVE: Final = 32
"""Of an id: its group depends on these."""


@compiled
def _group_of(page_id: int, groups: int) -> int:
    """Group of an id; rising with the id."""
    return ((page_id >> _BITS_BELOW) * groups) >> _BITS_ABOVE


@compiled
def _fill_starts(ids: NDArray[np.int64], count: int, starts: NDArray[np.int32]) -> bool:
    """Write the first row of each group; False if ids do not rise, or a group is too large."""
    groups = starts.size - 1
    group = 0
    before = np.int64(-1)
    for row in range(count):
        if ids[row] <= before:
            return False
        before = ids[row]
        own = _group_of(before, groups)
        while group <= own:
            starts[group] = row
            group += 1
        if row - starts[own] >= _MOST_IN_GROUP:
            return False
    starts[group:] = count
    return True


@compiled
def _find(
    starts: NDArray[np.int32],
    ids: NDArray[np.int64],
    places: NDArray[np.int32],
    leaving: NDArray[np.int32],
    page_id: int,
) -> int:
    """Row of a page, or `UNKNOWN`."""
    if page_id < 0:
        return UNKNOWN
    groups = starts.size - 1
    if groups > 0:
        group = _group_of(page_id, groups)
        # A row may have been given to a page of another group since: all of them are compared.
        for row in range(starts[group], starts[group + 1]):
            if ids[row] == page_id:
                return row
    return find_row(places, leaving, ids, page_id)


@compiled
def _find_many(
    starts: NDArray[np.int32],
    ids: NDArray[np.int64],
    places: NDArray[np.int32],
    leaving: NDArray[np.int32],
    wanted: NDArray[np.int64],
) -> NDArray[np.int32]:
    found = np.empty(wanted.size, np.int32)
    for k in range(-2 * AHEAD, wanted.size):
        _ask_for(starts, ids, wanted, k + 2 * AHEAD, k + AHEAD)
        if k >= 0:
            found[k] = _find(starts, ids, places, leaving, wanted[k])
    return found


@compiled
def _ask_for(
    starts: NDArray[np.int32],
    ids: NDArray[np.int64],
    wanted: NDArray[np.int64],
    later: int,
    soon: int,
) -> None:
    """Ask for the directory's entry of one id, and for the ids in the group of another."""
    groups = starts.size - 1
    if groups == 0:
        return
    if later < wanted.size:
        prefetch(starts, _group_of(max(wanted[later], 0), groups))
    if 0 <= soon < wanted.size:
        first = starts[_group_of(max(wanted[soon], 0), groups)]
        prefetch(ids, first)
        prefetch(ids, first + _IN_GROUP)


class PageLookup:
    """Page id → row. Ids are non-negative."""

    def __init__(self, expected: int = 0) -> None:
        self.ids: NDArray[np.int64] = reserved(max(_SMALLEST, expected), np.int64)
        """By row: the page's id; -1 or, beyond the rows in use, anything: none."""
        self._rows = 0
        """Rows from here on have never been used."""
        self._starts: NDArray[np.int32] = np.zeros(1, np.int32)
        """By group: first row; one more at the end."""
        self._table = GrowingTable()

    @classmethod
    def of(cls, page_ids: NDArray[np.int64]) -> Self:
        """Of pages in the rows 0, 1, …, for good: none is added. Their ids are not copied."""
        lookup = cls()
        lookup.ids = page_ids
        lookup.index(page_ids.size)
        return lookup

    def index(self, count: int) -> None:
        """Take rows 0, …, `count` - 1, whose ids the caller has written to `ids`.

        Ids that rise need the least memory. There must be nothing else yet.

        Raises:
            ValueError: there are pages already.
        """
        if self._rows:
            raise ValueError(f"{self._rows} rows are in use already")
        self._rows = count
        starts = np.zeros(count // _IN_GROUP + 2, np.int32)
        if _fill_starts(self.ids, count, starts):
            self._starts = starts
        else:
            self._table.make_room(self.ids, count)
            self._table.insert_many(self.ids, np.arange(count, dtype=np.int32))

    def add_many(self, page_ids: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add pages that are not there yet, each once."""
        if not page_ids.size:
            return
        end = int(rows.max()) + 1
        self._make_room_for_ids(end)
        if self._rows == 0 and np.array_equal(rows, np.arange(rows.size)):
            self.ids[:end] = page_ids
            self.index(end)
            return
        self._use_rows(end)
        self.ids[rows] = page_ids
        self._table.make_room(self.ids, page_ids.size)
        self._table.insert_many(self.ids, rows)

    def add(self, page_id: int, row: int) -> None:
        """Add a page that is not there yet."""
        self._make_room_for_ids(row + 1)
        self._use_rows(row + 1)
        self.ids[row] = page_id
        self._table.make_room(self.ids, 1)
        self._table.insert(self.ids, row)

    def remove(self, page_id: int) -> None:
        """Forget a page, if it is there."""
        row = self._table.remove(self.ids, page_id)
        if row == UNKNOWN:
            row = self.find(page_id)
        if row != UNKNOWN:
            self.ids[row] = _NO_PAGE

    def find(self, page_id: int) -> int:
        """Row of a page, or `UNKNOWN`."""
        table = self._table
        return int(_find(self._starts, self.ids, table.places, table.leaving, page_id))

    def find_many(self, page_ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Rows of pages; `UNKNOWN` where a page is not there."""
        table = self._table
        return _find_many(self._starts, self.ids, table.places, table.leaving, page_ids)

    @property
    def moved(self) -> int:
        """Entries that have ever been moved for growth."""
        return self._table.moved

    @property
    def nbytes(self) -> int:
        """Memory in use: directory and table, and the ids of the rows that have been used."""
        own = self._starts.nbytes + self._rows * self.ids.itemsize
        return int(own + self._table.nbytes)

    def _make_room_for_ids(self, end: int) -> None:
        if end > self.ids.size:
            self.ids = grown(self.ids, max(end, 2 * self.ids.size), used=self._rows)

    def _use_rows(self, end: int) -> None:
        if end > self._rows:
            self.ids[self._rows : end] = _NO_PAGE
            self._rows = end
