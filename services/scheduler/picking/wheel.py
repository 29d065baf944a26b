"""The calendar: pages in buckets by the time at which they may become worth a crawl.

A timing wheel of two levels. Each bucket is a chain of chunks, a cache line each, of row numbers.
A page that moves leaves its old entry behind: an entry counts only while the page's `bucket` says
so, and is dropped when its bucket comes up.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import ASLEEP, Rows
from shared.policy.compiled import compiled
from shared.policy.kernels.copying import copy_values
from shared.store.prefetch import prefetch
from shared.store.reserved import reserved

FINE: Final = 1 << 14
"""Buckets of one tick each."""

COARSE: Final = 1 << 13
"""Buckets of `TICKS_IN_COARSE` ticks each, for what is further away."""

TICKS_IN_COARSE: Final = 1 << 10

BUCKETS: Final = FINE + COARSE

ENTRIES_IN_CHUNK: Final = 15

_HELD: Final = BUCKETS
"""The chain whose entries are being tidied."""

_LATE: Final = BUCKETS + 1
"""The chain of a bucket that has come up, whose entries are being taken some at a time."""

_CHAINS: Final = BUCKETS + 2

_TIDIED_FROM: Final = 2
_TIDIED_SPARE: Final = 50_000
"""Where there are so many times the pages in entries, and so many more, it pays to look for those
that were left behind."""

CHAIN: Final = np.dtype([("head", np.int32), ("fill", np.int32), ("entries", np.int32)])
"""A bucket: its newest chunk (0: none), how many entries that has (all others are full), and how
many entries there are in all."""

DIAL: Final = np.dtype(
    [
        ("current", np.int64),  # tick that came up last
        ("entries", np.int64),  # those that were left behind included
        ("next_chunk", np.int64),  # first one never used
        ("free_chunk", np.int64),  # first of the free ones; 0: none
        ("tidied", np.int64),  # buckets that were tidied, of those that will be; none: all were
        ("held", np.int64),  # whose entries are being tidied; -1: of no bucket
        ("late", np.int64),  # whose entries are being taken some at a time; -1: of no bucket
        ("origin", np.float64),  # clock seconds at which tick 0 begins
        ("width", np.float64),  # clock seconds of a tick
    ]
)


class Wheel(NamedTuple):
    """The calendar's arrays; made by `make_wheel`."""

    chains: NDArray[Any]
    """By bucket: `CHAIN`."""
    chunks: NDArray[np.int32]
    """(n, 16): the next chunk, and row numbers."""
    dial: NDArray[Any]
    """One `DIAL`."""


def make_wheel(expected: int) -> Wheel:
    """An empty calendar with room for entries; memory is taken as it is used."""
    return Wheel(
        np.zeros(_CHAINS, CHAIN),
        reserved(chunks_for(expected), np.int32, (ENTRIES_IN_CHUNK + 1,)),
        np.array([(0, 0, 1, 0, BUCKETS, -1, -1, 0.0, 1.0)], DIAL),
    )


@compiled
def chunks_for(entries: int) -> int:
    """Chunks that suffice for so many entries, however they are spread."""
    return BUCKETS + entries // ENTRIES_IN_CHUNK + 2


@compiled
def has_room(wheel: Wheel, more: int) -> bool:
    """Whether there is room for so many more entries."""
    is_enough: bool = chunks_for(wheel.dial[0].entries + more) <= wheel.chunks.shape[0]
    return is_enough


def with_room(wheel: Wheel, more: int, at_once: int) -> Wheel:
    """The wheel, with room for so many more entries; if it is made larger, for so many at once.

    Memory is taken only as it is used, but a larger array has to be copied.
    """
    needed = chunks_for(int(wheel.dial[0]["entries"]) + more)
    if needed <= wheel.chunks.shape[0]:
        return wheel
    used = int(wheel.dial[0]["next_chunk"])
    size = max(2 * needed, chunks_for(at_once))
    larger = reserved(size, np.int32, (ENTRIES_IN_CHUNK + 1,))
    larger[:used] = wheel.chunks[:used]
    return wheel._replace(chunks=larger)


def entries_in(wheel: Wheel) -> int:
    """Entries, those that were left behind included."""
    return int(wheel.dial[0]["entries"])


def memory_of(wheel: Wheel) -> int:
    """Bytes in use."""
    chunks = int(wheel.dial[0]["next_chunk"]) * wheel.chunks.itemsize * wheel.chunks.shape[1]
    return int(chunks + wheel.chains.nbytes)


@compiled
def restart(wheel: Wheel, now: float, width: float) -> None:
    """Forget all entries, and begin at a time with ticks of a width."""
    for place in range(_CHAINS):
        chain = wheel.chains[place]
        chain.head = chain.fill = chain.entries = 0
    dial = wheel.dial[0]
    dial.current = dial.entries = dial.free_chunk = 0
    dial.next_chunk = 1
    dial.tidied, dial.held, dial.late = BUCKETS, -1, -1
    dial.origin, dial.width = now, width


@compiled
def _add_entry(wheel: Wheel, bucket: int, row: int) -> None:
    chain, dial = wheel.chains[bucket], wheel.dial[0]
    if chain.head == 0 or chain.fill == ENTRIES_IN_CHUNK:
        fresh = dial.free_chunk
        if fresh != 0:
            dial.free_chunk = wheel.chunks[fresh, 0]
        else:
            fresh = dial.next_chunk
            dial.next_chunk += 1
        wheel.chunks[fresh, 0] = chain.head
        chain.head = fresh
        chain.fill = 0
    chain.fill += 1
    wheel.chunks[chain.head, chain.fill] = row
    chain.entries += 1
    dial.entries += 1


@compiled
def put_off(wheel: Wheel, pages: Rows, row: int, time: float) -> bool:
    """Put a page where it comes up at a time, or before; infinite: never.

    What is beyond the calendar comes up sometime in its later half, and is put off again: those of
    a slice of time, each page at its own, so that they are never all looked at together.

    Returns:
        whether it was: False if that time has come.
    """
    page, dial = pages[row], wheel.dial[0]
    if time == math.inf:
        page.bucket = ASLEEP
        return True
    ticks = (time - dial.origin) / dial.width
    current = dial.current
    if not ticks >= current + 1:
        return False
    tick = int(min(ticks, 1e15))
    if tick - current < FINE:
        bucket = tick % FINE
    else:
        furthest = current // TICKS_IN_COARSE + COARSE - 1
        coarse = tick // TICKS_IN_COARSE
        if coarse > furthest:
            coarse = furthest - row % (COARSE // 2)
        bucket = FINE + coarse % COARSE
    if page.bucket != bucket:
        _add_entry(wheel, bucket, row)
        page.bucket = bucket
    return True


@compiled
def is_put_off(bucket: int) -> bool:
    """Whether a page's `bucket` is a place in the calendar, or that of sleepers."""
    return bucket < BUCKETS or bucket == ASLEEP


@compiled
def take_bucket(wheel: Wheel, pages: Rows, bucket: int) -> NDArray[np.int32]:
    """Empty a bucket; the rows in it, whose `bucket` is ASLEEP then."""
    if wheel.dial[0].held == bucket:
        _put_back(wheel, pages, wheel.chains[_HELD].entries)
    return take_some(wheel, pages, bucket, wheel.chains[bucket].entries)


@compiled
def take_some(wheel: Wheel, pages: Rows, bucket: int, most: int) -> NDArray[np.int32]:
    """Take about so many entries out of a bucket; their rows, whose `bucket` is ASLEEP then."""
    return _take(wheel, pages, bucket, bucket, most)


@compiled
def begin_taking(wheel: Wheel, bucket: int) -> bool:
    """Let the entries of a bucket that has come up be taken some at a time (`take_late`); whether
    they can be: not while those of another are, nor while they are tidied."""
    dial = wheel.dial[0]
    if dial.late >= 0 or dial.held == bucket:
        return False
    dial.late = bucket
    _move_chain(wheel, bucket, _LATE)
    return True


@compiled
def take_late(wheel: Wheel, pages: Rows, most: int) -> NDArray[np.int32]:
    """As `take_some`, of the bucket whose entries are taken some at a time."""
    dial = wheel.dial[0]
    found = _take(wheel, pages, _LATE, dial.late, most)
    if wheel.chains[_LATE].entries == 0:
        dial.late = -1
    return found


@compiled
def _move_chain(wheel: Wheel, bucket: int, place: int) -> None:
    """Move the entries of a bucket to a place without any."""
    chain, other = wheel.chains[bucket], wheel.chains[place]
    other.head, other.fill, other.entries = chain.head, chain.fill, chain.entries
    chain.head = chain.fill = chain.entries = 0


@compiled
def _take(wheel: Wheel, pages: Rows, place: int, bucket: int, most: int) -> NDArray[np.int32]:
    """Take chunks out of the chain at a place, of so many entries at least; the rows in them that
    are of a bucket, and are ASLEEP then."""
    chain, dial = wheel.chains[place], wheel.dial[0]
    found = np.empty(64, np.int32)
    count = looked_at = 0
    chunk, fill = chain.head, chain.fill
    while chunk != 0 and looked_at < most:
        if count + fill > found.size:
            larger = np.empty(2 * (count + fill), np.int32)
            copy_values(found[:count], larger)
            found = larger
        following = wheel.chunks[chunk, 0]
        if following != 0:
            for place_in in range(1, ENTRIES_IN_CHUNK + 1):
                prefetch(pages, wheel.chunks[following, place_in])
        for place_in in range(1, fill + 1):
            row = wheel.chunks[chunk, place_in]
            if pages[row].bucket == bucket:
                pages[row].bucket = ASLEEP
                found[count] = row
                count += 1
        looked_at += fill
        wheel.chunks[chunk, 0] = dial.free_chunk
        dial.free_chunk = chunk
        chunk = following
        fill = ENTRIES_IN_CHUNK
    dial.entries -= looked_at
    chain.entries -= looked_at
    chain.head, chain.fill = chunk, fill if chunk != 0 else 0
    return found[:count]


@compiled
def _put_back(wheel: Wheel, pages: Rows, most: int) -> None:
    """Put entries of the bucket that is being tidied back into it, if they count."""
    dial = wheel.dial[0]
    bucket = dial.held
    for row in _take(wheel, pages, _HELD, bucket, most):
        _add_entry(wheel, bucket, row)
        pages[row].bucket = bucket
    if wheel.chains[_HELD].entries == 0:
        dial.held = -1


@compiled
def tidy(wheel: Wheel, pages: Rows, used: int, most: int) -> None:
    """Drop entries that were left behind, if there are many of them: look at about so many.

    Args:
        wheel: of the pages.
        pages: rows of the shard.
        used: how many of them there are.
        most: entries to look at.
    """
    dial = wheel.dial[0]
    if dial.tidied == BUCKETS and dial.held < 0:
        if dial.entries <= _TIDIED_FROM * used + _TIDIED_SPARE:
            return
        dial.tidied = 0
    left = most
    while left > 0:
        if dial.held < 0:
            while dial.tidied < BUCKETS and wheel.chains[dial.tidied].entries == 0:
                dial.tidied += 1
            if dial.tidied == BUCKETS:
                return
            dial.held = dial.tidied
            dial.tidied += 1
            _move_chain(wheel, dial.held, _HELD)
        part = min(left, wheel.chains[_HELD].entries)
        left -= max(part, 1)
        _put_back(wheel, pages, part)


@compiled
def ripening(wheel: Wheel, ticks: int) -> tuple[int, int]:
    """The coarse bucket that comes up next, and how many of its entries are to be looked at now,
    so that few are left when it does.

    Args:
        wheel: the calendar.
        ticks: how many come up at once.
    """
    dial = wheel.dial[0]
    following = dial.current // TICKS_IN_COARSE + 1
    left = following * TICKS_IN_COARSE - dial.current
    bucket = FINE + following % COARSE
    entries = wheel.chains[bucket].entries
    return bucket, min(entries, entries * ticks // left + ENTRIES_IN_CHUNK)


@compiled
def skip_empty(wheel: Wheel, time: float) -> None:
    """Let time pass at once over a stretch so long that every bucket comes up anyway."""
    dial = wheel.dial[0]
    ticks = (time - dial.origin) / dial.width
    behind = int(min(ticks, 1e15)) - (FINE + COARSE * TICKS_IN_COARSE)
    dial.current = max(dial.current, behind)
