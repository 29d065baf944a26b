"""The packed crawl history of a page, as it stands in the database, and as ring buffers.

A packed history has a fixed width, so that an update never needs more room than there was: a
version byte, the number of records, and `DEPTH` records of eight bytes, little-endian, the oldest
first, the unused ones zero. In memory the records of many pages are rings, arrays of shape
(pages, DEPTH): record number j of a page lies in slot j mod DEPTH.
"""

from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shared.store.binary import Blobs

DEPTH: Final = 16
"""Records kept of a page; twice what the study of estimators found to suffice."""

VERSION: Final = 1

MOST_SIGNALS: Final = 65_535
"""More signals in one interval count as so many."""

_RECORD: Final = np.dtype(
    [("interval_days", "<f4"), ("signals", "<u2"), ("changed", "u1"), ("spare", "u1")]
)
_PACKED: Final = np.dtype([("version", "u1"), ("records", "u1"), ("record", _RECORD, (DEPTH,))])

PACKED_BYTES: Final = _PACKED.itemsize
"""Width of a packed history."""

EMPTY: Final = bytes([VERSION]) + bytes(PACKED_BYTES - 1)
"""The history of a page without a record."""


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
    seen = rings.seen[rows]
    kept = np.minimum(seen, DEPTH)
    # Place j of a packed history holds record number seen − kept + j.
    places = np.arange(DEPTH)
    slots = ((seen - kept)[:, np.newaxis] + places) % DEPTH
    used = places < kept[:, np.newaxis]
    packed = np.zeros(rows.size, _PACKED)
    packed["version"] = VERSION
    packed["records"] = kept
    picked = rows[:, np.newaxis], slots
    packed["record"]["interval_days"] = np.where(used, rings.interval_days[picked], 0)
    packed["record"]["signals"] = np.where(used, rings.signals[picked], 0)
    packed["record"]["changed"] = np.where(used, rings.changed[picked], 0)
    return Blobs(packed.view(np.uint8), np.arange(rows.size + 1, dtype=np.int64) * PACKED_BYTES)


def unpack(histories: Blobs) -> Rings:
    """Unpack histories into rings.

    Raises:
        BadHistory: another version, or another width.
    """
    _check(np.diff(histories.offsets) != PACKED_BYTES)
    packed = histories.arena.view(_PACKED)
    _check((packed["version"] != VERSION) | (packed["records"] > DEPTH))
    records = packed["record"]
    return Rings(
        np.ascontiguousarray(records["interval_days"], dtype=np.float32),
        np.ascontiguousarray(records["signals"], dtype=np.uint16),
        np.ascontiguousarray(records["changed"]),
        packed["records"].astype(np.int32),
    )


def _check(bad: NDArray[np.bool_]) -> None:
    if bad.any():
        raise BadHistory(
            f"the packed history in row {int(np.argmax(bad))} is not of version {VERSION}: this "
            "database was written by another version of Freshet; upgrade this one"
        )


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
