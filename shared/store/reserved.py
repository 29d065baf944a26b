"""Arrays with room to grow: address space is reserved far ahead, memory is taken as it is used."""

import mmap
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

FEW: Final = 1 << 16
"""Up to so many elements nothing is reserved: copying them takes a millisecond."""

RESERVED: Final = 1 << 27
"""Elements for which more are reserved at once: more pages than a shard is made for."""

_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_HUGE_FROM: Final = 1 << 22
"""Bytes from which on large pages of memory pay, as for numpy's own arrays."""


def reserved(
    count: int,
    dtype: DTypeLike,
    tail: tuple[int, ...] = (),
    *,
    wanted: int = RESERVED,
    dense: bool = True,
) -> NDArray[Any]:
    """An array of zeros that is not worth making larger soon.

    Args:
        count: elements that it must have; more than `FEW`: it gets `wanted` ones, or what the
            system has addresses for.
        dtype: of an element.
        tail: shape of an element.
        wanted: see `count`.
        dense: whether much of the array is used; its memory then comes in large pages.

    Raises:
        MemoryError: there is no room even for `count`.
    """
    if count <= FEW:
        return np.zeros((count, *tail), dtype)
    kind = np.dtype(dtype)
    item = kind.itemsize * int(np.prod(tail, dtype=np.int64))
    size = max(count, wanted)
    while True:
        try:
            room = mmap.mmap(-1, size * item, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            break
        except (OSError, MemoryError):
            if size == count:
                return np.zeros((count, *tail), kind)
            size = max(size // 2, count)
    if dense and size * item >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, kind).reshape(size, *tail)


def grown(rows: NDArray[Any], count: int, *, used: int | None = None) -> NDArray[Any]:
    """The first `used` (absent: all) elements in an array with room for `count`, then zeros."""
    used = rows.shape[0] if used is None else used
    larger = reserved(count, rows.dtype, rows.shape[1:])
    larger[:used] = rows[:used]
    return larger
