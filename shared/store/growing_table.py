"""An open-addressing hash table of row numbers that is made larger a few entries at a time.

The table holds rows only; their keys are in a column that its user keeps. When it is full, a larger
one takes its place, and each call that adds entries moves some of the old ones: no call ever moves
more than `MOVES` places for each entry that it adds. Until they have all moved, two tables are
looked at.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.prefetch import prefetch
from shared.store.reserved import reserved

UNKNOWN: Final = -1
"""Row of a key that is not there."""

MOVES: Final = 4
"""Places of the old table that are emptied for each new entry. The larger table is not full before
the old one is empty: see `_start_growing`."""

_FREE: Final = 0
_DELETED: Final = -1
_SMALLEST: Final = 64
_ROOM: Final = 1.3
"""Places for each entry of a table that is made for them at once."""

_GROWTH: Final = 2.5
"""... and of one that takes another's place."""

_FULLEST: Final = 0.8
"""Share of places in use or deleted at which a table gives way to another."""

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)

Keys = NDArray[Any]
Places = NDArray[np.int32]
"""Row + 1; 0: free, -1: deleted."""


@compiled
def _first_place(key: int, size: int) -> int:
    """Where a key is looked for first; any size of table will do."""
    mixed = (np.uint64(key) * _SPREAD) >> _HALF
    return np.int64((mixed * np.uint64(size)) >> _HALF)  # type: ignore[return-value]


@compiled
def _find_place(places: Places, keys: Keys, key: int) -> int:
    """Place of a key in a table that is not empty, or -1."""
    place = _first_place(key, places.size)
    while places[place] != _FREE:
        if places[place] > 0 and keys[places[place] - 1] == key:
            return place
        place += 1
        if place == places.size:
            place = 0
    return -1


@compiled
def find_row(places: Places, leaving: Places, keys: Keys, key: int) -> int:
    """Row of a key, or `UNKNOWN`."""
    row: int = UNKNOWN
    place = _find_place(places, keys, key)
    if place >= 0:
        row = places[place] - 1
    elif leaving.size > 0:
        place = _find_place(leaving, keys, key)
        if place >= 0:
            row = leaving[place] - 1
    return row


@compiled
def ask_for_place(places: Places, key: int) -> None:
    """Ask for where a key is looked for first."""
    prefetch(places, _first_place(key, places.size))


@compiled
def ask_for_key(places: Places, keys: Keys, key: int) -> int:
    """Ask for the key in this place; its row, or `UNKNOWN`: the place is free."""
    row: int = places[_first_place(key, places.size)] - 1
    if row >= 0:
        prefetch(keys, row)
    return row if row >= 0 else UNKNOWN


@compiled
def insert_row(places: Places, key: int, row: int) -> int:
    """Put a key where it is not yet; how many free places that took: 0 or 1."""
    place = _first_place(key, places.size)
    while places[place] > 0:
        place += 1
        if place == places.size:
            place = 0
    taken = 1 if places[place] == _FREE else 0
    places[place] = row + 1
    return taken


@compiled
def _insert_rows(places: Places, keys: Keys, rows: NDArray[np.int32]) -> int:
    taken = 0
    for row in rows:
        taken += insert_row(places, keys[row], row)
    return taken


@compiled
def _move(places: Places, leaving: Places, keys: Keys, begin: int, end: int) -> tuple[int, int]:
    """Empty some places of the old table: (entries that moved, free places that they took)."""
    moved = taken = 0
    for place in range(begin, end):
        # Free places stay free: looking for a key ends there.
        if leaving[place] > 0:
            row = leaving[place] - 1
            leaving[place] = _DELETED
            taken += insert_row(places, keys[row], row)
            moved += 1
    return moved, taken


@compiled
def _delete(places: Places, keys: Keys, key: int) -> int:
    """Forget a key; its row, or `UNKNOWN`."""
    place = _find_place(places, keys, key)
    if place < 0:
        return UNKNOWN
    row: int = places[place] - 1
    places[place] = _DELETED
    return row


class GrowingTable:
    """The table. Callers make room before they add."""

    def __init__(self) -> None:
        self.places: Places = reserved(_SMALLEST, np.int32)
        self.leaving: Places = np.empty(0, np.int32)
        """The table before, while its entries move; without elements: there is none."""
        self.size = 0
        """Entries."""
        self.moved = 0
        """Entries that have ever moved."""
        self._taken = 0
        """Places that are not free."""
        self._staying = 0
        """Entries that have not moved yet."""
        self._next = 0
        """Place in `leaving` where moving goes on."""

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return int(self.places.nbytes + self.leaving.nbytes)

    def make_room(self, keys: Keys, count: int) -> None:
        """Be ready for so many more entries: move some, or begin with a larger table."""
        if self.leaving.size:
            self._move_some(keys, MOVES * count)
        if self._taken + self._staying + count > _FULLEST * self.places.size:
            self._start_growing(keys, count)

    def _start_growing(self, keys: Keys, count: int) -> None:
        """Begin with a larger table.

        It has room for as many entries again, or for half as many as the old one had places. So
        before it is full, `MOVES` for each new entry have emptied the old one.
        """
        self._move_some(keys, self.leaving.size)
        before, factor = self.places, _GROWTH if self.size else _ROOM
        wanted = max(int(factor * (self.size + count)) + 1, before.size)
        self.places = reserved(wanted, np.int32, wanted=wanted)
        self._taken = 0
        if self.size:
            self.leaving, self._staying, self._next = before, self.size, 0
            self._move_some(keys, MOVES * count)

    def _move_some(self, keys: Keys, most: int) -> None:
        end = min(self._next + most, self.leaving.size)
        moved, taken = _move(self.places, self.leaving, keys, self._next, end)
        self._next = end
        self._staying -= moved
        self._taken += taken
        self.moved += moved
        if end == self.leaving.size:
            self.leaving, self._staying, self._next = np.empty(0, np.int32), 0, 0

    def insert(self, keys: Keys, row: int) -> None:
        """Add the key of a row, which is not there yet."""
        self.note_insertions(1, int(insert_row(self.places, keys[row], row)))

    def insert_many(self, keys: Keys, rows: NDArray[np.int32]) -> None:
        """Add the keys of rows, which are not there yet, each once."""
        self.note_insertions(rows.size, int(_insert_rows(self.places, keys, rows)))

    def note_insertions(self, count: int, taken: int) -> None:
        """A kernel has added so many entries, and they took so many free places."""
        self.size += count
        self._taken += taken

    def remove(self, keys: Keys, key: int) -> int:
        """Forget a key, which its column still has; its row, or `UNKNOWN`."""
        row = int(_delete(self.places, keys, key))
        if row == UNKNOWN and self.leaving.size:
            row = int(_delete(self.leaving, keys, key))
            self._staying -= row != UNKNOWN
        self.size -= row != UNKNOWN
        return row
