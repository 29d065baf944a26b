"""When each source sent its last signal of a page: 16 bytes, only for pages with several sources.

Of a page with signals of one source, that source and the time of its last signal say all. Of one
with several, an entry says how long before the page's latest signal of all each source sent its
last: in steps of 1/128 s before the end of that second, a year back. What is longer ago counts as a
year ago. Source slots are those of `shared.store.history`.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.store.binary import Blobs
from shared.store.history import SOURCES
from shared.store.page_status import NEVER
from shared.store.reserved import grown, reserved

Ages = NDArray[np.uint32]
"""By entry and slot; shape (entries, SOURCES)."""

NO_ENTRY: Final = 0
"""Number of nobody's entry: the page has no signals, or all are of one source."""

STEPS: Final = 128.0
"""In a second."""

NO_SIGNAL: Final = 0xFFFF_FFFF
"""Age of what a source never sent."""

_OLDEST: Final = NO_SIGNAL - 1.0

_SMALLEST: Final = 64

PACKED_BYTES: Final = 4 * SOURCES
"""Of an entry in the database: little-endian."""


@compiled
def clear_entry(ages: Ages, entry: int) -> None:
    """No source has sent a signal."""
    for slot in range(SOURCES):
        ages[entry, slot] = NO_SIGNAL


@compiled
def end_of_second(time: float) -> float:
    """What the ages of an entry are counted from, by the page's latest signal."""
    return math.ceil(time) if time > NEVER else NEVER


@compiled
def time_of_source(ages: Ages, entry: int, end: float, slot: int) -> float:
    """When a source sent its last signal; NEVER: it sent none.

    Args:
        ages: all entries.
        entry: of the page.
        end: `end_of_second` of the page's latest signal.
        slot: of the source.
    """
    age = ages[entry, slot]
    return NEVER if age == NO_SIGNAL else end - age / STEPS


@compiled
def set_time_of_source(ages: Ages, entry: int, end: float, slot: int, time: float) -> float:
    """Note a signal; the `end` that holds from now on (see `time_of_source`)."""
    if time > end:
        later = end_of_second(time)
        for other in range(SOURCES):
            if ages[entry, other] != NO_SIGNAL:
                age = ages[entry, other] + (later - end) * STEPS
                ages[entry, other] = np.uint32(min(age, _OLDEST))
        end = later
    ages[entry, slot] = np.uint32(min((end - time) * STEPS, _OLDEST))
    return end


class SourceTimes:
    """The entries of a shard's pages. One stays with its page, and with its row in memory."""

    def __init__(self) -> None:
        self.ages: Ages = reserved(_SMALLEST, np.uint32, (SOURCES,))
        self.used = 1
        """Entries from here on are free; the first is nobody's."""

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        return self.used * PACKED_BYTES

    def reserve(self, count: int) -> Ages:
        """The entries, with room for so many more."""
        if self.used + count > self.ages.shape[0]:
            size = max(self.used + count, 2 * self.ages.shape[0])
            self.ages = grown(self.ages, size, used=self.used)
        return self.ages

    def add(self, ages: Ages) -> NDArray[np.int32]:
        """Take entries as they were stored; their numbers."""
        self.reserve(len(ages))
        numbers = np.arange(self.used, self.used + len(ages), dtype=np.int32)
        self.ages[numbers] = ages
        self.used += len(ages)
        return numbers


def pack_source_times(ages: Ages, entries: NDArray[np.int32]) -> Blobs:
    """Entries of pages for the database; empty where a page has none."""
    has_entry = entries != NO_ENTRY
    offsets = np.zeros(entries.size + 1, np.int64)
    np.cumsum(np.where(has_entry, PACKED_BYTES, 0), out=offsets[1:])
    packed = ages[entries[has_entry]].astype("<u4")
    return Blobs(packed.reshape(-1).view(np.uint8), offsets)


def unpack_source_times(packed: bytes) -> Ages:
    """Entries one after the other, as the database has them."""
    return np.frombuffer(packed, "<u4").astype(np.uint32).reshape(-1, SOURCES)
