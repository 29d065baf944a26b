"""What the estimator remembers of a page's crawls and signals, packed in the database and in rings.

A packed history has a fixed width, so that an update never needs more room than there was: a
version byte, the number of records, what was learned besides (α has a column of its own), and
`DEPTH` records, little-endian, the oldest first, the unused ones zero. In memory the records of
many pages are rings, arrays of shape (pages, DEPTH): record number j of a page lies in slot
j mod DEPTH.

Signals are counted by *source slot*: the first three sources of a host have one each, in order of
appearance, and the last is for all others.
"""

from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shared.policy.compiled import compiled
from shared.store.binary import Blobs
from shared.store.prefetch import prefetch

DEPTH: Final = 16
"""Records kept of a page; twice what the study of estimators found to suffice."""

SOURCES: Final = 4
"""Source slots of a host."""

OWN_SOURCES: Final = SOURCES - 1
"""Sources of a host that have a slot of their own."""

VERSION: Final = 2

MOST_SIGNALS: Final = 65_535
"""More signals of a source in one interval count as so many."""

_RECORD: Final = np.dtype(
    [("interval_days", "<f4"), ("signals", "<u2", (SOURCES,)), ("changed", "u1")]
)
_PACKED: Final = np.dtype(
    [
        ("version", "u1"),
        ("records", "u1"),
        ("pending", "<u2", (SOURCES,)),
        ("multiplier", "<f4"),
        ("last_source", "u1"),
        ("totals", "<u4", (SOURCES,)),
        ("evidence", "<f4", (SOURCES,)),
        ("posterior_shape", "<f4"),
        ("record", _RECORD, (DEPTH,)),
    ]
)

PACKED_BYTES: Final = _PACKED.itemsize
"""Width of a packed history."""

WAITING: Final = np.dtype(
    [("pending", "<u2", (SOURCES,)), ("multiplier", "<f4"), ("last_source", "u1")]
)
WAITING_OFFSET: Final = 2
"""The part of a packed history that a scheduler needs, and where it stands: the signals since the
last crawl, by source slot, the burst multiplier that holds since then, and whose the latest signal
is."""


class BadHistory(ValueError):
    """A packed history that this version cannot read."""


class Rings(NamedTuple):
    """The last crawl records of many pages, and what goes with them."""

    interval_days: NDArray[np.float32]
    """Effective days since the crawl before: days times the page's burst multiplier; shape
    (pages, DEPTH)."""
    signals: NDArray[np.uint16]
    """Signals in the interval; shape (pages, DEPTH, SOURCES)."""
    changed: NDArray[np.uint8]
    """1 where the crawl found a change; shape (pages, DEPTH)."""
    seen: NDArray[np.int32]
    """Records that ever came, those before loading only as far as they were kept; (pages,)."""
    pending: NDArray[np.uint16]
    """Signals since the last crawl; (pages, SOURCES)."""
    last_source: NDArray[np.uint8]
    """Slot of the latest signal; (pages,)."""
    totals: NDArray[np.uint32]
    """All signals ever; (pages, SOURCES)."""
    evidence: NDArray[np.float32]
    """κ of each source, as fitted; (pages, SOURCES)."""
    posterior_shape: NDArray[np.float32]
    """Shape a of the posterior of α; (pages,)."""
    multiplier: NDArray[np.float32]
    """Burst multiplier that holds since the last crawl; (pages,)."""

    @classmethod
    def empty(cls, pages: int) -> Self:
        """Rings without a record."""
        shape = (pages, DEPTH)
        return cls(
            np.zeros(shape, np.float32),
            np.zeros((*shape, SOURCES), np.uint16),
            np.zeros(shape, np.uint8),
            np.zeros(pages, np.int32),
            np.zeros((pages, SOURCES), np.uint16),
            np.zeros(pages, np.uint8),
            np.zeros((pages, SOURCES), np.uint32),
            np.zeros((pages, SOURCES), np.float32),
            np.zeros(pages, np.float32),
            np.ones(pages, np.float32),
        )


@compiled
def ask_for(rings: Rings, row: int) -> None:
    """Ask for what a crawl or a signal needs of a page, before it does (`prefetch`)."""
    prefetch(rings.interval_days, row)
    prefetch(rings.signals, row)
    prefetch(rings.changed, row)
    prefetch(rings.seen, row)
    prefetch(rings.pending, row)
    prefetch(rings.last_source, row)
    prefetch(rings.evidence, row)
    prefetch(rings.multiplier, row)


_BESIDES: Final = Rings._fields[Rings._fields.index("seen") + 1 :]
"""Columns of `Rings` that are fields of a packed history as they are."""


def pack(rings: Rings, rows: NDArray[np.int64]) -> Blobs:
    """Pack the histories of some rows of the rings, in the order of `rows`."""
    # Columns of a single one would be contiguous: the kernel would be compiled for them again.
    packed = np.zeros(max(rows.size, 2), _PACKED)
    packed["version"] = VERSION
    _pack(rings, rows, _fields_of(packed))
    return Blobs(
        packed[: rows.size].view(np.uint8), np.arange(rows.size + 1, dtype=np.int64) * PACKED_BYTES
    )


def _fields_of(packed: NDArray[Any]) -> Rings:
    """Packed histories as if they were rings whose slot 0 has the oldest record; views."""
    records = packed["record"]
    return Rings(
        records["interval_days"],
        records["signals"],
        records["changed"],
        packed["records"],
        *(packed[name] for name in _BESIDES),
    )


@compiled
def _pack(rings: Rings, rows: NDArray[np.int64], packed: Rings) -> None:
    for place in range(rows.size):
        row = rows[place]
        seen = rings.seen[row]
        kept = min(seen, DEPTH)
        packed.seen[place] = kept
        packed.last_source[place] = rings.last_source[row]
        packed.posterior_shape[place] = rings.posterior_shape[row]
        packed.multiplier[place] = rings.multiplier[row]
        for source in range(SOURCES):
            packed.pending[place, source] = rings.pending[row, source]
            packed.totals[place, source] = rings.totals[row, source]
            packed.evidence[place, source] = rings.evidence[row, source]
        for number in range(kept):
            slot = (seen - kept + number) % DEPTH
            packed.interval_days[place, number] = rings.interval_days[row, slot]
            packed.changed[place, number] = rings.changed[row, slot]
            for source in range(SOURCES):
                packed.signals[place, number, source] = rings.signals[row, slot, source]


def unpack(histories: Blobs) -> Rings:
    """Unpack histories into rings, which may be written.

    Raises:
        BadHistory: another version, or another width.
    """
    _check(np.diff(histories.offsets) != PACKED_BYTES)
    packed = histories.arena.view(_PACKED)
    _check((packed["version"] != VERSION) | (packed["records"] > DEPTH))
    records = packed["record"]
    return Rings(
        _own(records["interval_days"], dtype=np.float32),
        _own(records["signals"], dtype=np.uint16),
        _own(records["changed"]),
        packed["records"].astype(np.int32),
        _own(packed["pending"], dtype=np.uint16),
        _own(packed["last_source"]),
        _own(packed["totals"], dtype=np.uint32),
        _own(packed["evidence"], dtype=np.float32),
        _own(packed["posterior_shape"], dtype=np.float32),
        _own(packed["multiplier"], dtype=np.float32),
    )


def _own(column: NDArray[Any], dtype: DTypeLike | None = None) -> NDArray[Any]:
    # Not `ascontiguousarray`: of one row at most, that is a view of what came, which is read-only.
    return np.array(column, dtype=dtype, order="C", copy=True)


def _check(bad: NDArray[np.bool_]) -> None:
    if bad.any():
        raise BadHistory(
            f"the packed history in row {int(np.argmax(bad))} is not of version {VERSION}: this "
            "database was written by another version of Freshet; upgrade this one"
        )


def _empty() -> bytes:
    packed = np.zeros(1, _PACKED)
    packed["version"], packed["multiplier"] = VERSION, 1.0
    return packed.tobytes()


EMPTY: Final = _empty()
"""The history of a page without a record."""

NOTHING_WAITS: Final = EMPTY[WAITING_OFFSET : WAITING_OFFSET + WAITING.itemsize - 1]
"""What stands from `WAITING_OFFSET` on where no signal waits, up to whose the latest one is."""


def records_of(packed: bytes) -> list[dict[str, Any]]:
    """One packed history as records, the oldest first, for people to read."""
    rings = unpack(Blobs(np.frombuffer(packed, np.uint8), np.array([0, len(packed)])))
    return [
        {
            "interval_days": float(rings.interval_days[0, slot]),
            "signals": int(rings.signals[0, slot].sum()),
            "changed": bool(rings.changed[0, slot]),
        }
        for slot in range(int(rings.seen[0]))
    ]
