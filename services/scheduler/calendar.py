"""The calendar: pages in buckets by the time at which they may become worth a crawl.

A timing wheel of two levels. Each bucket is a chain of chunks, a cache line each, of row numbers.
A page that moves leaves its old entry behind: an entry counts only while the page's `bucket` says
so, and is dropped when its bucket comes up.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.pages import ASLEEP, Rows
from shared.policy.compiled import compiled

FINE: Final = 1 << 14
"""Buckets of one tick each."""

COARSE: Final = 1 << 13
"""Buckets of `TICKS_IN_COARSE` ticks each, for what is further away."""

TICKS_IN_COARSE: Final = 1 << 10

BUCKETS: Final = FINE + COARSE

ENTRIES_IN_CHUNK: Final = 15

NOW: Final = -1
"""Tick of what is due already; not a place in the calendar."""

_CURRENT, _NEXT_CHUNK, _FREE_CHUNK, _ENTRIES = 0, 1, 2, 3
_ORIGIN, _WIDTH = 0, 1


class Wheel(NamedTuple):
    """The calendar's arrays; made by `make_wheel`."""

    heads: NDArray[np.int32]
    """By bucket: its newest chunk; 0: none."""
    fills: NDArray[np.int32]
    """By bucket: entries in its newest chunk; all others are full."""
    chunks: NDArray[np.int32]
    """(n, 16): the next chunk, and row numbers."""
    cursors: NDArray[np.int64]
    """Tick that came up last; first chunk never used; first of the free chunks; entries."""
    scale: NDArray[np.float64]
    """Clock seconds at which tick 0 begins; of a tick."""


def make_wheel(expected: int) -> Wheel:
    """An empty calendar with room for entries; memory is taken as it is used."""
    return Wheel(
        np.zeros(BUCKETS, np.int32),
        np.zeros(BUCKETS, np.int32),
        np.empty((chunks_for(expected), ENTRIES_IN_CHUNK + 1), np.int32),
        np.array([0, 1, 0, 0], np.int64),
        np.array([0.0, 1.0]),
    )


def chunks_for(entries: int) -> int:
    """Chunks that suffice for so many entries, however they are spread."""
    return BUCKETS + entries // ENTRIES_IN_CHUNK + 2


def with_room(wheel: Wheel, more: int) -> Wheel:
    """The wheel, with room for so many more entries."""
    needed = chunks_for(int(wheel.cursors[_ENTRIES]) + more)
    if needed <= wheel.chunks.shape[0]:
        return wheel
    used = int(wheel.cursors[_NEXT_CHUNK])
    larger = np.empty((2 * needed, ENTRIES_IN_CHUNK + 1), np.int32)
    larger[:used] = wheel.chunks[:used]
    return wheel._replace(chunks=larger)


def entries_in(wheel: Wheel) -> int:
    """Entries, those that were left behind included."""
    return int(wheel.cursors[_ENTRIES])


def memory_of(wheel: Wheel) -> int:
    """Bytes in use."""
    chunks = int(wheel.cursors[_NEXT_CHUNK]) * wheel.chunks.itemsize * wheel.chunks.shape[1]
    return int(chunks + wheel.heads.nbytes + wheel.fills.nbytes)


@compiled
def restart(wheel: Wheel, now: float, width: float) -> None:
    """Forget all entries, and begin at a time with ticks of a width."""
    wheel.heads[:] = 0
    wheel.fills[:] = 0
    wheel.cursors[_CURRENT] = 0
    wheel.cursors[_NEXT_CHUNK] = 1
    wheel.cursors[_FREE_CHUNK] = 0
    wheel.cursors[_ENTRIES] = 0
    wheel.scale[_ORIGIN] = now
    wheel.scale[_WIDTH] = width


@compiled
def tick_of(wheel: Wheel, time: float) -> int:
    """The tick that a time is in; `NOW` if that has come up."""
    ticks = (time - wheel.scale[_ORIGIN]) / wheel.scale[_WIDTH]
    current = wheel.cursors[_CURRENT]
    if not ticks >= current + 1:
        return NOW
    return int(min(ticks, 1e15))


@compiled
def _add_entry(wheel: Wheel, bucket: int, row: int) -> None:
    fill = int(wheel.fills[bucket])
    chunk = wheel.heads[bucket]
    if chunk == 0 or fill == ENTRIES_IN_CHUNK:
        fresh = wheel.cursors[_FREE_CHUNK]
        if fresh != 0:
            wheel.cursors[_FREE_CHUNK] = wheel.chunks[fresh, 0]
        else:
            fresh = wheel.cursors[_NEXT_CHUNK]
            wheel.cursors[_NEXT_CHUNK] += 1
        wheel.chunks[fresh, 0] = chunk
        wheel.heads[bucket] = fresh
        chunk = fresh
        fill = 0
    wheel.chunks[chunk, fill + 1] = row
    wheel.fills[bucket] = fill + 1
    wheel.cursors[_ENTRIES] += 1


@compiled
def put_off(wheel: Wheel, pages: Rows, row: int, time: float) -> bool:
    """Put a page where it comes up at a time, or before; infinite: never.

    Returns:
        whether it was: False if that time has come.
    """
    page = pages[row]
    if time == math.inf:
        page.bucket = ASLEEP
        return True
    tick = tick_of(wheel, time)
    if tick == NOW:
        return False
    current = wheel.cursors[_CURRENT]
    if tick - current < FINE:
        bucket = tick % FINE
    else:
        furthest = current // TICKS_IN_COARSE + COARSE - 1
        bucket = FINE + min(tick // TICKS_IN_COARSE, furthest) % COARSE
    if page.bucket != bucket:
        _add_entry(wheel, bucket, row)
        page.bucket = bucket
    return True


@compiled
def is_put_off(bucket: int) -> bool:
    """Whether a page's `bucket` is a place in the calendar, or that of sleepers."""
    return bucket < BUCKETS or bucket == ASLEEP


@compiled
def take_bucket(
    wheel: Wheel, pages: Rows, bucket: int, found: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Empty a bucket; the rows in it, in `found` or a larger array. Their `bucket` is ASLEEP."""
    count = 0
    chunk = wheel.heads[bucket]
    fill = int(wheel.fills[bucket])
    wheel.heads[bucket] = 0
    wheel.fills[bucket] = 0
    while chunk != 0:
        if count + fill > found.size:
            larger = np.empty(2 * (count + fill), np.int32)
            larger[:count] = found[:count]
            found = larger
        for place in range(1, fill + 1):
            row = wheel.chunks[chunk, place]
            if pages[row].bucket == bucket:
                pages[row].bucket = ASLEEP
                found[count] = row
                count += 1
        wheel.cursors[_ENTRIES] -= fill
        following = wheel.chunks[chunk, 0]
        wheel.chunks[chunk, 0] = wheel.cursors[_FREE_CHUNK]
        wheel.cursors[_FREE_CHUNK] = chunk
        chunk = following
        fill = ENTRIES_IN_CHUNK
    return found[:count]


@compiled
def next_tick(wheel: Wheel) -> int:
    """Let one more tick come up; its number. Its buckets are `bucket_of`, `coarse_bucket_of`."""
    wheel.cursors[_CURRENT] += 1
    current: int = wheel.cursors[_CURRENT]
    return current


@compiled
def has_come(wheel: Wheel, time: float) -> bool:
    """Whether all of the calendar until a time has come up."""
    ticks = (time - wheel.scale[_ORIGIN]) / wheel.scale[_WIDTH]
    return not ticks >= wheel.cursors[_CURRENT] + 1


@compiled
def skip_empty(wheel: Wheel, time: float) -> None:
    """Let time pass at once over a stretch so long that every bucket comes up anyway."""
    ticks = (time - wheel.scale[_ORIGIN]) / wheel.scale[_WIDTH]
    most = int(FINE + COARSE * TICKS_IN_COARSE)
    behind = int(min(ticks, 1e15)) - most
    wheel.cursors[_CURRENT] = max(wheel.cursors[_CURRENT], behind)
