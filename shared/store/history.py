"""The packed crawl history of a page, as it stands in the database, and as ring buffers.

A packed history is one version byte and up to `DEPTH` records of eight bytes, little-endian, the
oldest first. In memory the records of many pages are rings, arrays of shape (pages, DEPTH):
record number j of a page lies in slot j mod DEPTH.
"""

from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.binary import Blobs

DEPTH: Final = 16
"""Records kept of a page; twice what the study of estimators found to suffice."""

VERSION: Final = 1

MOST_SIGNALS: Final = 65_535
"""More signals in one interval count as so many."""

_RECORD: Final = np.dtype(
    [("interval_days", "<f4"), ("signals", "<u2"), ("changed", "u1"), ("spare", "u1")]
)
_RECORD_BYTES: Final = _RECORD.itemsize


class BadHistory(ValueError):
    """A packed history that this version cannot read."""


class Rings(NamedTuple):
    """The last crawl records of many pages."""

    interval_days: NDArray[np.float32]
    """Days since the crawl before; shape (pages, DEPTH)."""
    signals: NDArray[np.uint16]
    """Signals in the interval; shape (pages, DEPTH)."""
    changed: NDArray[np.uint8]
    """1 where the crawl found a change; shape (pages, DEPTH)."""
    seen: NDArray[np.int32]
    """Records that ever came, those before loading only as far as they were kept; (pages,)."""

    @classmethod
    def empty(cls, pages: int) -> Self:
        """Rings without a record."""
        shape = (pages, DEPTH)
        return cls(
            np.zeros(shape, np.float32),
            np.zeros(shape, np.uint16),
            np.zeros(shape, np.uint8),
            np.zeros(pages, np.int32),
        )

    def take(self, rows: NDArray[np.int64]) -> Self:
        """A copy of some rows."""
        return type(self)(
            self.interval_days[rows], self.signals[rows], self.changed[rows], self.seen[rows]
        )


def pack(rings: Rings, rows: NDArray[np.int64]) -> Blobs:
    """Pack the histories of some rows of the rings, in the order of `rows`."""
    records = np.zeros((rows.size, DEPTH), _RECORD)
    records["interval_days"] = rings.interval_days[rows]
    records["signals"] = rings.signals[rows]
    records["changed"] = rings.changed[rows]
    seen = rings.seen[rows]
    offsets = np.zeros(rows.size + 1, np.int64)
    np.cumsum(1 + _RECORD_BYTES * np.minimum(seen, DEPTH), out=offsets[1:])
    arena = np.empty(offsets[-1], np.uint8)
    _pack(records.view(np.uint8).reshape(rows.size, DEPTH, _RECORD_BYTES), seen, offsets, arena)
    return Blobs(arena, offsets)


def unpack(histories: Blobs) -> Rings:
    """Unpack histories into rings; longer ones keep their last `DEPTH` records.

    Raises:
        BadHistory: another version, or a length that no history has.
    """
    packed = np.zeros((histories.count, DEPTH, _RECORD_BYTES), np.uint8)
    seen = np.zeros(histories.count, np.int32)
    bad = _unpack(histories.arena, histories.offsets, packed, seen)
    if bad >= 0:
        raise BadHistory(
            f"the packed history in row {bad} is not of version {VERSION}: this database was "
            "written by another version of Freshet; upgrade this one"
        )
    records = packed.reshape(histories.count, DEPTH * _RECORD_BYTES).view(_RECORD)
    return Rings(
        np.ascontiguousarray(records["interval_days"], dtype=np.float32),
        np.ascontiguousarray(records["signals"], dtype=np.uint16),
        np.ascontiguousarray(records["changed"]),
        seen,
    )


@compiled
def _pack(
    records: NDArray[np.uint8],
    seen: NDArray[np.int32],
    offsets: NDArray[np.int64],
    arena: NDArray[np.uint8],
) -> None:
    for row in range(seen.size):
        at = offsets[row]
        arena[at] = VERSION
        at += 1
        for number in range(max(seen[row] - DEPTH, 0), seen[row]):
            for byte in range(_RECORD_BYTES):
                arena[at + byte] = records[row, number % DEPTH, byte]
            at += _RECORD_BYTES


@compiled
def _unpack(
    arena: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    packed: NDArray[np.uint8],
    seen: NDArray[np.int32],
) -> int:
    """Fill `packed` and `seen`; return the first row that cannot be read, or −1."""
    for row in range(seen.size):
        begin, end = offsets[row], offsets[row + 1]
        if end <= begin or arena[begin] != VERSION or (end - begin - 1) % _RECORD_BYTES:
            return row
        kept = min((end - begin - 1) // _RECORD_BYTES, DEPTH)
        seen[row] = kept
        at = end - kept * _RECORD_BYTES
        for slot in range(kept):
            for byte in range(_RECORD_BYTES):
                packed[row, slot, byte] = arena[at]
                at += 1
    return -1


def records_of(packed: bytes) -> list[dict[str, Any]]:
    """One packed history as records, the oldest first, for people to read."""
    rings = unpack(Blobs(np.frombuffer(packed, np.uint8), np.array([0, len(packed)])))
    return [
        {
            "interval_days": float(rings.interval_days[0, slot]),
            "signals": int(rings.signals[0, slot]),
            "changed": bool(rings.changed[0, slot]),
        }
        for slot in range(int(rings.seen[0]))
    ]
