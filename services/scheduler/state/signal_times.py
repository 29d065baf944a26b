"""When the last signal of a page was: kept of the pages that had one, about 17 bytes each."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import NEVER
from shared.policy.compiled import compiled
from shared.store.growing_table import (
    UNKNOWN,
    GrowingTable,
    ask_for_key,
    ask_for_place,
    find_row,
    insert_row,
)
from shared.store.prefetch import AHEAD, prefetch
from shared.store.reserved import grown, reserved

_SMALLEST: Final = 64


class LastSignals(NamedTuple):
    """The arrays, for kernels."""

    rows: NDArray[np.int32]
    """By entry: the page's row."""
    times: NDArray[np.float64]
    """By entry: of its last signal, Unix seconds."""
    places: NDArray[np.int32]
    leaving: NDArray[np.int32]
    """Hash tables of entries by their rows."""


@compiled
def last_signal_at(last: LastSignals, row: int) -> float:
    """When the last signal of a page was; NEVER: it had none."""
    entry = find_row(last.places, last.leaving, last.rows, row)
    return last.times[entry] if entry >= 0 else NEVER


@compiled
def _note(
    last: LastSignals, used: int, rows: NDArray[np.int32], times: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], int, int]:
    """(which are later than the last one of their page, entries added, free places taken)."""
    own_rows, own_times, places, leaving = last
    is_later = np.zeros(rows.size, np.bool_)
    added = taken = 0
    for index in range(-2 * AHEAD, rows.size):
        if index + 2 * AHEAD < rows.size:
            ask_for_place(places, rows[index + 2 * AHEAD])
        if 0 <= index + AHEAD < rows.size:
            prefetch(own_times, ask_for_key(places, own_rows, rows[index + AHEAD]))
        if index < 0 or rows[index] < 0:
            continue
        entry = find_row(places, leaving, own_rows, rows[index])
        if entry < 0:
            entry = used + added
            own_rows[entry] = rows[index]
            own_times[entry] = NEVER
            taken += insert_row(places, rows[index], entry)
            added += 1
        if times[index] > own_times[entry]:
            own_times[entry] = times[index]
            is_later[index] = True
    return is_later, added, taken


class SignalTimes:
    """The times of the last signals. An entry stays when its page goes: its row is used again."""

    def __init__(self) -> None:
        self._rows: NDArray[np.int32] = reserved(_SMALLEST, np.int32)
        self._times: NDArray[np.float64] = reserved(_SMALLEST, np.float64)
        self._table = GrowingTable()

    @property
    def arrays(self) -> LastSignals:
        """The arrays; others may take their places when something is noted."""
        return LastSignals(self._rows, self._times, self._table.places, self._table.leaving)

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        entry = self._rows.itemsize + self._times.itemsize
        return self._table.nbytes + self._table.size * entry

    def of(self, row: int) -> float:
        """When the last signal of a page was; NEVER: it had none."""
        return float(last_signal_at(self.arrays, row))

    def note(self, rows: NDArray[np.int32], times: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Take signals in the order of their arrival; rows of -1 are left out.

        Returns:
            which are later than all before of their page.
        """
        self.reserve(rows.size)
        is_later, added, taken = _note(self.arrays, self._table.size, rows, times)
        self._table.note_insertions(added, taken)
        return np.asarray(is_later)

    def forget(self, row: int) -> None:
        """A row has another page."""
        table = self._table
        entry = int(find_row(table.places, table.leaving, self._rows, row))
        if entry != UNKNOWN:
            self._times[entry] = NEVER

    def reserve(self, count: int) -> None:
        """Make room for so many more pages that have had no signal yet."""
        used = self._table.size
        if used + count > self._rows.size:
            size = max(used + count, 2 * self._rows.size)
            self._rows = grown(self._rows, size, used=used)
            self._times = grown(self._times, size, used=used)
        self._table.make_room(self._rows, count)
