"""Arrays of which most elements are left out: what is usual is not sent.

To send a value takes the server three times as long as to see that it is the usual one and to send
NULL. Most pages of a shard have never been signalled, never failed, and are in no class.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from shared.policy.compiled import compiled
from shared.store.binary import UnsupportedArray, parse_array

_HEADER: Final = struct.Struct(">iiiii")
_LENGTH_BYTES: Final = 4
"""In front of each element; negative: it is NULL."""

_ARRAY_OIDS: Final = (1005, 1007, 1016, 1022)
"""Those of int2, int4, int8 and float8."""

_FLOATS: Final = 701

_TYPES: Final[dict[int, type[np.generic]]] = {
    21: np.int16,
    23: np.int32,
    20: np.int64,
    _FLOATS: np.float64,
}
"""By the oid of an element."""


@dataclass(frozen=True, slots=True)
class SparseArray:
    """An array with NULLs in it."""

    values: NDArray[Any]
    is_null: NDArray[np.bool_]
    """Where the server sent nothing."""

    def filled(self, usual: NDArray[Any] | float) -> NDArray[Any]:
        """The array itself; where nothing was sent, what is usual: one for all, or one an element.

        Nothing is copied: what is freed between arrays that stay would be lost to other ones.
        """
        np.copyto(self.values, usual, where=self.is_null)
        return self.values


def nothing_sent(count: int) -> bytes:
    """An array of so many floats, all of them NULL, as a server sends it."""
    return _HEADER.pack(1, 1, _FLOATS, count, 1) + b"\xff" * (_LENGTH_BYTES * count)


def parse_sparse(data: Buffer) -> SparseArray:
    """A PostgreSQL binary array with NULLs.

    Raises:
        UnsupportedArray: several dimensions, another type, or a length that is not its type's.
    """
    dimensions, _, oid, count, _ = _HEADER.unpack_from(data)
    kind = _TYPES.get(oid)
    if dimensions != 1 or kind is None:
        raise UnsupportedArray(
            f"an array of type {oid} with {dimensions} dimensions and NULLs cannot be read into "
            "numpy"
        )
    values, is_null = np.zeros(count, kind), np.zeros(count, np.bool_)
    items = np.frombuffer(memoryview(data).toreadonly(), np.uint8, offset=_HEADER.size)
    if not _put(items, values.view(np.uint8), is_null, values.itemsize):
        raise UnsupportedArray(f"an array of type {oid} has elements of other lengths")
    return SparseArray(values, is_null)


def register_sparse_arrays(connection: psycopg.Connection[Any]) -> None:
    """Let a connection take arrays with NULLs in them, too: as a `SparseArray`."""
    for oid in _ARRAY_OIDS:
        connection.adapters.register_loader(oid, _SparseLoader)


class _SparseLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> NDArray[Any] | SparseArray:
        _, nulls = struct.unpack_from(">ii", data)
        return parse_sparse(data) if nulls else parse_array(data)


@compiled
def _put(
    items: NDArray[np.uint8], values: NDArray[np.uint8], nulls: NDArray[np.bool_], width: int
) -> bool:
    """Write the elements that are there, and note the others; whether all is as it should be."""
    place = 0
    for index in range(nulls.size):
        begin = index * width
        if place + _LENGTH_BYTES > items.size:
            return False
        nulls[index] = items[place] >= 128
        is_so_long = items[place + _LENGTH_BYTES - 1] == width
        place += _LENGTH_BYTES
        if nulls[index]:
            continue
        if not is_so_long or place + width > items.size:
            return False
        for byte in range(width):
            values[begin + byte] = items[place + width - 1 - byte]
        place += width
    return place == items.size
