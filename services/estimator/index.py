"""From page ids to rows: an open-addressing hash table, looked up by the thousand."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

ABSENT: Final = -1
"""Row of an id that is not there; and, as ids are never negative, the mark of an empty cell."""

FULLEST: Final = 0.6
"""Share of cells in use above which the table grows."""


class PageIndex:
    """Rows by page id. Ids are even hashes already, so their low bits choose the cell."""

    def __init__(self, page_ids: NDArray[np.int64]) -> None:
        self._size = 0
        self._allocate(page_ids.size)
        self.add(page_ids, np.arange(page_ids.size, dtype=np.int64))

    def __len__(self) -> int:
        return self._size

    def find(self, page_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of ids, `ABSENT` for those that are not there."""
        rows = np.empty(page_ids.size, np.int64)
        _find(self._keys, self._rows, page_ids, rows)
        return rows

    def add(self, page_ids: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Take in ids that are not there yet."""
        if self._size + page_ids.size > FULLEST * self._keys.size:
            keys, old = self._keys, self._rows
            self._allocate(self._size + page_ids.size)
            used = keys != ABSENT
            _add(self._keys, self._rows, keys[used], old[used])
        _add(self._keys, self._rows, page_ids, rows)
        self._size += page_ids.size

    def _allocate(self, pages: int) -> None:
        cells = 1 << max(int(np.ceil(np.log2((pages + 1) / FULLEST * 1.3))), 4)
        self._keys = np.full(cells, ABSENT, np.int64)
        self._rows = np.empty(cells, np.int64)


@compiled
def _find(
    keys: NDArray[np.int64],
    stored: NDArray[np.int64],
    page_ids: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    mask = keys.size - 1
    for position in range(page_ids.size):
        page_id = page_ids[position]
        cell = page_id & mask
        while keys[cell] != ABSENT and keys[cell] != page_id:
            cell = (cell + 1) & mask
        rows[position] = stored[cell] if keys[cell] == page_id else ABSENT


@compiled
def _add(
    keys: NDArray[np.int64],
    stored: NDArray[np.int64],
    page_ids: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    mask = keys.size - 1
    for position in range(page_ids.size):
        cell = page_ids[position] & mask
        while keys[cell] != ABSENT:
            cell = (cell + 1) & mask
        keys[cell] = page_ids[position]
        stored[cell] = rows[position]
