"""When the last signals of a page were, by source: kept of the pages that had one.

About 17 bytes for a page, and 16 more if several sources have sent signals of it. A word says
either when the last signal was, exactly, and of which source slot; or, below zero, which entry of
`SourceTimes` has the times by source, and the end of the second of the latest.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import NEVER
from shared.policy.compiled import compiled
from shared.rules.page_events import is_after_crawl, is_news
from shared.store.growing_table import (
    UNKNOWN,
    GrowingTable,
    ask_for_key,
    ask_for_place,
    find_row,
    insert_row,
)
from shared.store.history import SOURCES
from shared.store.prefetch import AHEAD, prefetch
from shared.store.reserved import grown, reserved
from shared.store.source_times import (
    Ages,
    SourceTimes,
    clear_entry,
    end_of_second,
    set_time_of_source,
    time_of_source,
)

_SMALLEST: Final = 64

_NO_SIGNAL: Final = 0
_STEPS: Final = float(1 << 27)
"""In a second: every double of a time since 1972 is some of them. A time that is kept as an earlier
one would make news of the same signal when it comes again."""

_SLOT_BITS: Final = 2
_SLOT_MASK: Final = SOURCES - 1
_ENTRY_BITS: Final = 30
_ENTRY_MASK: Final = (1 << _ENTRY_BITS) - 1
_LAST_SECOND: Final = float((1 << 33) - 1)
"""Of the year 2242; signals count as sent by then."""


class LastSignals(NamedTuple):
    """The arrays, for kernels."""

    rows: NDArray[np.int32]
    """By place in the table: the page's row."""
    words: NDArray[np.int64]
    """By place in the table: when its last signals were."""
    places: NDArray[np.int32]
    leaving: NDArray[np.int32]
    """Hash tables of places by rows."""
    ages: Ages
    """Of `SourceTimes`."""


@compiled
def _word_of(time: float, slot: int) -> int:
    """The word of a page with signals of one source."""
    return ((math.ceil(time * _STEPS) + 1) << _SLOT_BITS) | slot


@compiled
def _word_of_entry(entry: int, end: float) -> int:
    """The word of a page with signals of several sources."""
    return ~((int(end) << _ENTRY_BITS) | entry)


@compiled
def _entry_of(word: int) -> int:
    return ~word & _ENTRY_MASK


@compiled
def _end_of(word: int) -> float:
    return float(~word >> _ENTRY_BITS)


@compiled
def _time_in(word: int, ages: Ages, slot: int) -> float:
    """When the last signal of a source was."""
    if word < 0:
        return time_of_source(ages, _entry_of(word), _end_of(word), slot)
    if word == _NO_SIGNAL or (word & _SLOT_MASK) != slot:
        return NEVER
    return ((word >> _SLOT_BITS) - 1) / _STEPS


@compiled
def last_signal_at(last: LastSignals, row: int) -> float:
    """When the last signal of a page was, of whatever source; NEVER: it had none."""
    place = find_row(last.places, last.leaving, last.rows, row)
    latest = NEVER
    if place >= 0:
        for slot in range(SOURCES):
            latest = max(latest, _time_in(last.words[place], last.ages, slot))
    return latest


@compiled
def weight_after(
    last: LastSignals, row: int, time: float, delay: float, weights: NDArray[np.float32]
) -> float:
    """Signals of a page that a crawl did not see, though they came before the news of it.

    Of each source only the last is known, so it counts once.

    Args:
        last: the times of signals.
        row: of the page.
        time: of the crawl.
        delay: of signals, seconds.
        weights: of a signal, by source slot.
    """
    weight = 0.0
    place = find_row(last.places, last.leaving, last.rows, row)
    if place >= 0:
        for slot in range(SOURCES):
            if is_after_crawl(_time_in(last.words[place], last.ages, slot), time, delay):
                weight += weights[slot]
    return weight


@compiled
def _note(
    last: LastSignals,
    used: int,
    free_entry: int,
    rows: NDArray[np.int32],
    slots: NDArray[np.int8],
    times: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], int, int, int]:
    """(which are later than the last one of their page and source, pages added, free places of the
    table taken, entries taken)."""
    own_rows, words, places, leaving, ages = last
    is_later = np.zeros(rows.size, np.bool_)
    added = taken = entries = 0
    for index in range(-2 * AHEAD, rows.size):
        if index + 2 * AHEAD < rows.size:
            ask_for_place(places, rows[index + 2 * AHEAD])
        if 0 <= index + AHEAD < rows.size:
            prefetch(words, ask_for_key(places, own_rows, rows[index + AHEAD]))
        if index < 0 or rows[index] < 0:
            continue
        place = find_row(places, leaving, own_rows, rows[index])
        if place < 0:
            place = used + added
            own_rows[place] = rows[index]
            words[place] = _NO_SIGNAL
            taken += insert_row(places, rows[index], place)
            added += 1
        slot, time = slots[index], min(times[index], _LAST_SECOND)
        word = words[place]
        if not is_news(time, _time_in(word, ages, slot)):
            continue
        is_later[index] = True
        if word == _NO_SIGNAL or (word > 0 and (word & _SLOT_MASK) == slot):
            words[place] = _word_of(time, slot)
            continue
        if word > 0:
            before = _time_in(word, ages, word & _SLOT_MASK)
            entry, end = free_entry + entries, end_of_second(before)
            clear_entry(ages, entry)
            set_time_of_source(ages, entry, end, word & _SLOT_MASK, before)
            entries += 1
        else:
            entry, end = _entry_of(word), _end_of(word)
        words[place] = _word_of_entry(entry, set_time_of_source(ages, entry, end, slot, time))
    return is_later, added, taken, entries


@compiled
def _point_to(
    last: LastSignals,
    rows: NDArray[np.int32],
    entries: NDArray[np.int32],
    latest: NDArray[np.float64],
) -> None:
    """Let pages that are in the table have these entries."""
    for index in range(rows.size):
        place = find_row(last.places, last.leaving, last.rows, rows[index])
        last.words[place] = _word_of_entry(entries[index], end_of_second(latest[index]))


class SignalTimes:
    """The times of the last signals. What is kept of a row stays when its page goes: it is used
    again."""

    def __init__(self) -> None:
        self._rows: NDArray[np.int32] = reserved(_SMALLEST, np.int32)
        self._words: NDArray[np.int64] = reserved(_SMALLEST, np.int64)
        self._table = GrowingTable()
        self._by_source = SourceTimes()

    @property
    def arrays(self) -> LastSignals:
        """The arrays; others may take their places when something is noted."""
        table = self._table
        return LastSignals(
            self._rows, self._words, table.places, table.leaving, self._by_source.ages
        )

    @property
    def size(self) -> int:
        """Places of pages that are taken."""
        return self._table.size

    def place_of(self, row: int) -> int:
        """The place of a page; -1: it never had a signal."""
        return self._place_of(row)

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        page = self._rows.itemsize + self._words.itemsize
        return self._table.nbytes + self._table.size * page + self._by_source.nbytes

    def of(self, row: int) -> float:
        """When the last signal of a page was; NEVER: it had none."""
        return float(last_signal_at(self.arrays, row))

    def by_source(self, row: int) -> list[float]:
        """The same by source slot."""
        place = self._place_of(row)
        word, ages = _NO_SIGNAL if place == UNKNOWN else int(self._words[place]), self.arrays.ages
        return [float(_time_in(word, ages, slot)) for slot in range(SOURCES)]

    def note(
        self, rows: NDArray[np.int32], slots: NDArray[np.int8], times: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Take signals in the order of their arrival; rows of -1 are left out.

        Returns:
            which are later than all before of their page and source.
        """
        self.reserve(rows.size)
        self._by_source.reserve(rows.size)
        is_later, added, taken, entries = _note(
            self.arrays, self._table.size, self._by_source.used, rows, slots, times
        )
        self._table.note_insertions(added, taken)
        self._by_source.used += entries
        return np.asarray(is_later)

    def load_by_source(
        self, rows: NDArray[np.int32], ages: Ages, latest: NDArray[np.float64]
    ) -> None:
        """Take the times by source of pages whose latest signals were noted already."""
        entries = self._by_source.add(ages)
        _point_to(self.arrays, rows, entries, latest)

    def forget(self, row: int) -> None:
        """A row has another page."""
        place = self._place_of(row)
        if place == UNKNOWN:
            return
        word = int(self._words[place])
        if word < 0:
            clear_entry(self._by_source.ages, _entry_of(word))
        else:
            self._words[place] = _NO_SIGNAL

    def _place_of(self, row: int) -> int:
        table = self._table
        return int(find_row(table.places, table.leaving, self._rows, row))

    def reserve(self, count: int) -> None:
        """Make room for so many more pages that have had no signal yet."""
        used = self._table.size
        if used + count > self._rows.size:
            size = max(used + count, 2 * self._rows.size)
            self._rows = grown(self._rows, size, used=used)
            self._words = grown(self._words, size, used=used)
        self._table.make_room(self._rows, count)
