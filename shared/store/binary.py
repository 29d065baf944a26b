"""numpy arrays to and from PostgreSQL's binary forms, without a Python object for each value."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format


@dataclass(frozen=True, slots=True)
class _Type:
    """A PostgreSQL type of fixed width, and the big-endian numpy type that it is on the wire."""

    name: str
    oid: int
    array_oid: int
    wire: np.dtype[Any]


_TYPES: Final = {
    np.dtype(native): _Type(name, oid, array_oid, np.dtype(wire))
    for native, name, oid, array_oid, wire in (
        (np.bool_, "bool", 16, 1000, "u1"),
        (np.int16, "int2", 21, 1005, ">i2"),
        (np.int32, "int4", 23, 1007, ">i4"),
        (np.int64, "int8", 20, 1016, ">i8"),
        (np.float32, "float4", 700, 1021, ">f4"),
        (np.float64, "float8", 701, 1022, ">f8"),
    )
}
_BY_OID: Final = {kind.oid: (native, kind) for native, kind in _TYPES.items()}

_ARRAY_HEADER: Final = struct.Struct(">iiiii")
COPY_BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END: Final = b"\xff\xff"
"""What stands before and after the rows of a binary COPY."""


class UnsupportedArray(TypeError):
    """An array that has no PostgreSQL type here, or the wrong number of dimensions."""


def _type_of(array: NDArray[Any]) -> _Type:
    kind = _TYPES.get(array.dtype)
    if kind is None or array.ndim != 1:
        raise UnsupportedArray(
            f"an array of {array.ndim} dimensions of {array.dtype} cannot be sent; flat ones of "
            f"{', '.join(str(native) for native in _TYPES)} can"
        )
    return kind


@dataclass(frozen=True, slots=True)
class Blobs:
    """Byte strings of varying length, one after the other."""

    arena: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    """Blob i is arena[offsets[i]:offsets[i + 1]]; shape (count + 1,)."""

    @property
    def slices(self) -> tuple[memoryview, NDArray[np.int32], NDArray[np.int32]]:
        """What `substr` takes on the server: all in one; where each begins, counted from 1; how
        long it is."""
        used = self.arena[self.offsets[0] : self.offsets[-1]]
        begins = self.offsets[:-1] - self.offsets[0] + 1
        return used.data, begins.astype(np.int32), np.diff(self.offsets).astype(np.int32)


def joined_blobs(parts: Sequence[Blobs]) -> Blobs:
    """Byte strings of several parts, one part after the other."""
    lengths = np.concatenate([np.empty(0, np.int64), *(np.diff(part.offsets) for part in parts)])
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    used = [part.arena[part.offsets[0] : part.offsets[-1]] for part in parts]
    return Blobs(np.concatenate([np.empty(0, np.uint8), *used]), offsets)


def array_bytes(array: NDArray[Any]) -> bytearray:
    """A flat array, with or without strides, as a PostgreSQL binary array without NULLs."""
    kind = _type_of(array)
    item = np.dtype([("length", ">i4"), ("value", kind.wire)])
    # Written where it is sent from: a batch has megabytes of it.
    data = bytearray(_ARRAY_HEADER.size + array.size * item.itemsize)
    _ARRAY_HEADER.pack_into(data, 0, 1, 0, kind.oid, array.size, 1)
    items = np.frombuffer(data, item, offset=_ARRAY_HEADER.size)
    items["length"] = kind.wire.itemsize
    items["value"] = array
    return data


def parse_array(data: Buffer) -> NDArray[Any]:
    """A PostgreSQL binary array of a fixed-width type as a native numpy array, copied.

    Raises:
        UnsupportedArray: NULLs inside, several dimensions, or a type of varying width.
    """
    view = memoryview(data)
    dimensions, nulls, oid = struct.unpack_from(">iii", view)
    if oid not in _BY_OID or nulls or dimensions > 1:
        raise UnsupportedArray(
            f"an array of type {oid} with {dimensions} dimensions"
            f"{' and NULLs' if nulls else ''} cannot be read into numpy"
        )
    native, kind = _BY_OID[oid]
    if dimensions == 0:
        return np.empty(0, native)
    items = np.frombuffer(
        view[_ARRAY_HEADER.size :], np.dtype([("length", ">i4"), ("value", kind.wire)])
    )
    return items["value"].astype(native)


def copy_bytes(columns: Sequence[NDArray[Any] | np.generic | bytes]) -> bytes:
    """Columns of equal length (see `copy_rows`) as the body of a binary COPY."""
    return b"".join((COPY_BEGIN, copy_rows(columns).reshape(-1).data, COPY_END))


def copy_rows(
    columns: Sequence[NDArray[Any] | np.generic | bytes], *, fields: int | None = None
) -> NDArray[np.uint8]:
    """Columns of equal length as rows of a binary COPY; shape (rows, bytes of a row).

    Args:
        columns: some arrays, at least one; a number or bytes: the same in each row.
        fields: that a row has, where others follow; None: these are all.
    """
    arrays = {
        index: column for index, column in enumerate(columns) if isinstance(column, np.ndarray)
    }
    wires = [
        np.dtype(f"V{len(column)}") if isinstance(column, bytes) else _wire_of(column)
        for column in columns
    ]
    layout: list[tuple[str, Any]] = [("fields", ">i2")]
    for index, wire in enumerate(wires):
        layout += [(f"length{index}", ">i4"), (f"value{index}", wire)]
    alike = np.zeros((), np.dtype(layout))
    alike["fields"] = len(columns) if fields is None else fields
    for index, (wire, column) in enumerate(zip(wires, columns, strict=True)):
        alike[f"length{index}"] = wire.itemsize
        if index not in arrays:
            alike[f"value{index}"] = np.void(column) if isinstance(column, bytes) else column
    # What all rows have in common is written at once: to walk over them for a column costs more.
    rows = np.full(len(next(iter(arrays.values()))), alike)
    for index, column in arrays.items():
        rows[f"value{index}"] = column
    return rows.view(np.uint8).reshape(rows.size, alike.itemsize)


def _wire_of(column: NDArray[Any] | np.generic) -> np.dtype[Any]:
    return _type_of(np.atleast_1d(column)).wire


class _ArrayDumper(Dumper):
    """Sends a numpy array as an array of its own type."""

    format = Format.BINARY

    def get_key(self, obj: NDArray[Any], _format: Any) -> Any:
        return (self.cls, obj.dtype.str)

    def upgrade(self, obj: NDArray[Any], _format: Any) -> "_ArrayDumper":
        dumper = type(self)(self.cls)
        dumper.oid = _type_of(obj).array_oid
        return dumper

    def dump(self, obj: NDArray[Any]) -> bytearray:
        return array_bytes(obj)


class _ArrayLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> NDArray[Any]:
        return parse_array(data)


def register_arrays(connection: psycopg.Connection[Any]) -> None:
    """Let a connection send numpy arrays, and get arrays in binary results as numpy."""
    adapters = connection.adapters
    adapters.register_dumper(np.ndarray, _ArrayDumper)
    for kind in _TYPES.values():
        adapters.register_loader(kind.array_oid, _ArrayLoader)
