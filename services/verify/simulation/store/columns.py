"""Columns as rows, and rows as columns."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from services.verify.simulation.store.database import Row
from shared.store.binary import Blobs
from shared.store.columns import SignalsBySource
from shared.store.source_times import unpack_source_times
from shared.store.writer import Column

_TYPES: Final[dict[str, type[np.generic]]] = {
    "page_id": np.int64,
    "host_id": np.int64,
    "digest": np.int64,
    "signal_count": np.int64,
    "signals": np.int32,
    "crawls": np.int32,
    "changes": np.int32,
    "failures": np.int32,
    "misses": np.int16,
    "status": np.int16,
    "page_class": np.int16,
    "requests": np.int16,
}
"""Of columns that are no floats."""

_COLUMNS: Final = {"page_ids": "page_id", "host_ids": "host_id", "removed_at": "updated_at"}
"""Of what snapshots have under another name."""


def rows_of(values: Mapping[str, Column]) -> list[Row]:
    """Columns as rows."""
    lists: list[list[Any]] = []
    for column in values.values():
        if isinstance(column, Blobs):
            data, ends = column.arena.tobytes(), column.offsets.tolist()
            lists.append([data[a:b] for a, b in itertools.pairwise(ends)])
        elif isinstance(column, list):
            lists.append(column)
        else:
            lists.append(column.tolist())
    names = tuple(values)
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def columns_of(kind: Any, rows: Sequence[Row]) -> Any:
    """Rows as one of the dataclasses of `shared.store.columns`."""
    names = [_COLUMNS.get(name, name) for name in kind.__dataclass_fields__]
    return kind(
        *(np.array([row[name] for row in rows], _TYPES.get(name, np.float64)) for name in names)
    )


def by_source_of(rows: Sequence[Row]) -> SignalsBySource:
    """The signals by source of those pages that have any."""
    several = [place for place, row in enumerate(rows) if row["signal_times"]]
    packed = b"".join(rows[place]["signal_times"] for place in several)
    return SignalsBySource(np.array(several, np.int64), unpack_source_times(packed))
