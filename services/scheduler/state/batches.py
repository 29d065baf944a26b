"""Batches of signals: true or false together (design: second generation, point 3).

A source that is half right is so by the batch: a commit that touched a hundred pages, a site that
was built anew. Signals of one directory and source that come within three minutes of one another
are a batch b, with log odds θ_b, from 0 on, and information L_b, from 1 on. A signal of evidence κ
counts there as one of evidence

    κ_b = ln(1 + (e^κ − 1) e^θ_b)

A crawl of a page whose last n signals are of b says what the batch is worth. With x = α t + the
evidence of its earlier signals, d = n (1 − e^{−κ_b}), u = e^{−x − nκ_b}, the chance that nothing
had changed:

    g = d u/(1 − u) where it had changed, else −d
    L_b += d² u/(1 − u),   θ_b ← clip(θ_b + g/L_b, ±6)

and the pages that still wait in b are valued anew. As long as nothing is known of a batch its
signals count as they would alone.

All of it is of this process's memory: whoever loads a shard begins with batches of which nothing is
known. Pages that wait have 20 bytes, by their places in `signal_times`; there are no more batches
than waiting pages, and those that signals may join.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled
from shared.store.history import SOURCES
from shared.store.reserved import grown, reserved

BATCH_SECONDS: Final = 180.0
"""Signals that are farther apart are of two batches."""

RENEWAL: Final = 0.05
"""Pages are valued anew when θ has moved so far: κ_b changes by so much at most, relatively."""

_OPEN: Final = 4096
"""Batches that signals may join, at most."""

_NONE: Final = -1
MOST_ODDS: Final = 6.0
"""What |θ| is at most."""

_MOST_EVIDENCE: Final = 30.0
"""Signals that are as good as certain are taken at their word."""

_SMALLEST: Final = 64

BATCH: Final = np.dtype(
    [
        ("last_at", np.float64),  # of its latest signal
        ("odds", np.float32),  # θ
        ("told", np.float32),  # θ by which its pages are valued
        ("information", np.float32),  # L
        ("host", np.int32),
        ("first", np.int32),  # place of one of its pages; -1: none waits
        ("directory", np.uint16),
        ("slot", np.int8),
        ("is_due", np.bool_),  # its pages are to be valued anew
    ],
    align=True,
)


class Waiting(NamedTuple):
    """By a page's place in `signal_times`."""

    batches: NDArray[np.int32]
    """Of its last signals; -1: of none."""
    earlier: NDArray[np.float32]
    """What its signals before those count, as `signals` of its row."""
    counts: NDArray[np.float32]
    """Signals of the batch."""
    following: NDArray[np.int32]
    """Place of another page of the batch; -1: none."""
    preceding: NDArray[np.int32]


class Batches(NamedTuple):
    """The arrays, for kernels."""

    rows: NDArray[Any]
    """Of type `BATCH`."""
    joinable: NDArray[np.int32]
    """By a hash of directory and source: the latest batch; -1: none."""
    free: NDArray[np.int32]
    """Batches that are nobody's."""
    due: NDArray[np.int32]
    """Batches whose pages are to be valued anew."""
    counts: NDArray[np.int64]
    """How many are free; how many are due."""
    waiting: Waiting


class BatchTruth:
    """What is believed of the batches of a shard's signals."""

    def __init__(self) -> None:
        self._rows = np.zeros(0, BATCH)
        self._joinable = np.full(_OPEN, _NONE, np.int32)
        self._free, self._due = np.empty(0, np.int32), np.empty(0, np.int32)
        self._counts = np.zeros(2, np.int64)
        self._waiting = Waiting(
            reserved(_SMALLEST, np.int32),
            reserved(_SMALLEST, np.float32),
            reserved(_SMALLEST, np.float32),
            reserved(_SMALLEST, np.int32),
            reserved(_SMALLEST, np.int32),
        )
        self._places = 0

    def arrays(self, places: int, signals: int = 0) -> Batches:
        """The arrays, with room for so many pages with signals, and for so many signals more."""
        if places > self._places:
            if places > self._waiting.batches.size:
                size = max(places, 2 * self._waiting.batches.size)
                self._waiting = Waiting(
                    *(grown(column, size, used=self._places) for column in self._waiting)
                )
            # Their memory is taken now, and not where the first signals come amid a tick.
            for column in self._waiting:
                column[self._places : places] = 0
            self._waiting.batches[self._places : places] = _NONE
            self._places = places
        if signals > self._counts[0]:
            self._grow(signals)
        return Batches(
            self._rows, self._joinable, self._free, self._due, self._counts, self._waiting
        )

    def _grow(self, signals: int) -> None:
        size, free = len(self._rows), int(self._counts[0])
        larger = size + max(signals - free, size, _SMALLEST)
        rows = np.zeros(larger, BATCH)
        rows[:size] = self._rows
        unused = np.empty(larger, np.int32)
        unused[:free] = self._free[:free]
        unused[free : free + larger - size] = np.arange(size, larger)
        due = np.empty(larger, np.int32)
        due[: self._counts[1]] = self._due[: self._counts[1]]
        self._rows, self._free, self._due = rows, unused, due
        self._counts[0] += larger - size


@compiled
def evidence_in_batch(evidence: float, odds: float) -> float:
    """κ_b of a signal of evidence κ in a batch with log odds θ."""
    return math.log1p(math.expm1(evidence) * math.exp(odds))


@compiled
def join_batch(
    page: Any,
    directory: int,
    batches: Batches,
    place: int,
    slot: int,
    weight: float,
    time: float,
) -> None:
    """A page has a signal, from the source in a slot, that would count `weight` by itself."""
    waiting = batches.waiting
    evidence = page.kappa * weight
    if not 0.0 < evidence < _MOST_EVIDENCE:
        leave_batch(batches, place)
        page.signals += weight
        return
    number = _batch_of(batches, page.host, directory, slot, time)
    batch = batches.rows[number]
    if waiting.batches[place] != number:
        leave_batch(batches, place)
        waiting.batches[place] = number
        waiting.earlier[place] = page.signals
        waiting.counts[place] = 0.0
        waiting.preceding[place] = _NONE
        waiting.following[place] = batch.first
        if batch.first != _NONE:
            waiting.preceding[batch.first] = place
        batch.first = place
    waiting.counts[place] += 1.0
    page.signals += evidence_in_batch(evidence, batch.told) / page.kappa


@compiled
def _spot_of(host: int, directory: int, slot: int) -> int:
    """Where the latest batch of a directory and source is noted."""
    mixed = (np.int64(host) * 65_536 + directory) * SOURCES + slot
    spot: int = (mixed * 2_654_435_761 >> 20) & (_OPEN - 1)  # type: ignore[assignment]
    return spot


@compiled
def _batch_of(batches: Batches, host: int, directory: int, slot: int, time: float) -> int:
    """The batch that a signal joins; a new one where it is of none."""
    spot = _spot_of(host, directory, slot)
    number = batches.joinable[spot]
    if number != _NONE:
        batch = batches.rows[number]
        is_same = batch.host == host and batch.directory == directory and batch.slot == slot
        if is_same and abs(time - batch.last_at) < BATCH_SECONDS:
            batch.last_at = max(time, batch.last_at)
            return int(number)
        batches.joinable[spot] = _NONE
        _free_if_empty(batches, number)
    batches.counts[0] -= 1
    number = batches.free[batches.counts[0]]
    batch = batches.rows[number]
    batch.last_at = time
    batch.odds = batch.told = 0.0
    batch.information = 1.0
    batch.host, batch.directory, batch.slot = host, directory, slot
    batch.first = _NONE
    batch.is_due = False
    batches.joinable[spot] = number
    return int(number)


@compiled
def _free_if_empty(batches: Batches, number: int) -> None:
    batch = batches.rows[number]
    spot = _spot_of(batch.host, batch.directory, batch.slot)
    if batch.first == _NONE and batches.joinable[spot] != number and not batch.is_due:
        batches.free[batches.counts[0]] = number
        batches.counts[0] += 1


@compiled
def leave_batch(batches: Batches, place: int) -> None:
    """A page does not wait any more, or in another batch."""
    waiting = batches.waiting
    number = waiting.batches[place]
    if number == _NONE:
        return
    before, after = waiting.preceding[place], waiting.following[place]
    if before != _NONE:
        waiting.following[before] = after
    else:
        batches.rows[number].first = after
    if after != _NONE:
        waiting.preceding[after] = before
    waiting.batches[place] = _NONE
    _free_if_empty(batches, number)


@compiled
def learn_of_batch(
    page: Any,
    batches: Batches,
    place: int,
    weights: NDArray[np.float32],
    days: float,
    changed: bool,
) -> None:
    """A crawl says whether a page has changed in the days since the one before, whose last signal
    is of a batch. The row is as it was before the crawl."""
    number = batches.waiting.batches[place]
    batch = batches.rows[number]
    evidence = page.kappa * weights[batch.slot]
    if not 0.0 < evidence < _MOST_EVIDENCE:
        return
    number_of_signals = batches.waiting.counts[place]
    evidence = evidence_in_batch(evidence, batch.odds)
    others = page.alpha * days + page.kappa * batches.waiting.earlier[place]
    unchanged = math.exp(-(others + number_of_signals * evidence))
    slope = -number_of_signals * math.expm1(-evidence)
    odds_of_none = unchanged / max(1.0 - unchanged, 1e-9)
    batch.information += slope * slope * odds_of_none
    step = (slope * odds_of_none if changed else -slope) / batch.information
    batch.odds = max(-MOST_ODDS, min(batch.odds + step, MOST_ODDS))
    if abs(batch.odds - batch.told) > RENEWAL and not batch.is_due:
        batch.is_due = True
        batches.due[batches.counts[1]] = number
        batches.counts[1] += 1


@compiled
def renew_pages(
    pages: Rows, own_rows: NDArray[np.int32], batches: Batches, weights: NDArray[np.float32]
) -> NDArray[np.int32]:
    """Value the pages that wait in batches of which more is known; their rows.

    Args:
        pages: rows of the shard.
        own_rows: of the pages, by their places.
        batches: all of them.
        weights: of signals, by host and source slot.
    """
    waiting, count = batches.waiting, 0
    for index in range(batches.counts[1]):
        place = batches.rows[batches.due[index]].first
        while place != _NONE:
            count += 1
            place = waiting.following[place]
    renewed = np.empty(count, np.int32)
    count = 0
    for index in range(batches.counts[1]):
        number = batches.due[index]
        batch = batches.rows[number]
        batch.told, batch.is_due = batch.odds, False
        place = batch.first
        while place != _NONE:
            page = pages[own_rows[place]]
            evidence = page.kappa * weights[page.host, batch.slot]
            if 0.0 < evidence < _MOST_EVIDENCE:
                own = evidence_in_batch(evidence, batch.told) / page.kappa
                page.signals = waiting.earlier[place] + waiting.counts[place] * own
            renewed[count] = own_rows[place]
            count += 1
            place = waiting.following[place]
        _free_if_empty(batches, number)
    batches.counts[1] = 0
    return renewed
