"""Which page to crawl at each slot: the interface, and the full scan behind it.

The scan looks at every page once a window and keeps a few times as many candidates as the window
can take. Between two scans only they, and the pages that something happened to, are looked at. A
pick is certain when it is at least as urgent as anything left out can be before the window ends;
when it is not, a new scan is made, and as a last resort every page is looked at for that one slot.
So the choice is the full scan's, whatever the window.
"""

import math
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.pages import Rows
from services.scheduler.picking import PICK, PICKED, commit, fill_slots
from services.scheduler.priority import priority_of
from services.scheduler.scanning import MARGIN, best_now, choose_candidates, evaluate
from shared.policy.compiled import compiled

_SLOTS_AT_ONCE: Final = 256
"""More slots in one go would make the heap's bounds too loose."""

_SHORTEST_WINDOW: Final = 0.05
_LONGEST_WINDOW: Final = 10.0
"""Wall seconds; and a window ends before its own requests can time out."""

_TICKS_PER_SECOND: Final = 20.0
_SHRINK: Final = 0.5
_GROW: Final = 1.25


class Space(Protocol):
    """Where the pages and hosts of a shard are; the arrays may be replaced when they grow."""

    @property
    def pages(self) -> Rows:
        """Rows of the pages."""
        ...

    @property
    def used(self) -> int:
        """Rows from here on have never been used."""
        ...

    @property
    def host_rows(self) -> Rows:
        """Rows of the hosts."""
        ...

    @property
    def host_count(self) -> int:
        """How many hosts there are."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What the selection goes by. Times in clock seconds unless said otherwise."""

    request_timeout: float
    speed: float
    """Clock seconds in a wall second."""
    uniform: bool = False


class Selector(Protocol):
    """Picks pages for slots. Times never go back."""

    def touch(self, rows: NDArray[np.int32]) -> None:
        """Something happened to these pages: they may be more urgent than thought. No duplicates
        are needed, nor do they harm."""
        ...

    def reset(self) -> None:
        """Much has changed: look at everything again."""
        ...

    def select(self, slots: NDArray[np.float64], rate: float, least: float) -> Rows:
        """Fill slots.

        Args:
            slots: times, rising.
            rate: slots per clock second to expect from now on.
            least: crawl value below which a slot is left empty; 0: never.

        Returns:
            a `PICK` for each slot, row -1 where there is nothing to crawl. Picked pages are in
            flight, and their hosts' tokens are taken.
        """
        ...


_UNKNOWN: Final = math.inf
"""Ceiling of a candidate that something happened to."""


@compiled
def _add_candidates(
    pages: Rows,
    candidates: NDArray[np.int32],
    ceilings: NDArray[np.float64],
    count: int,
    rows: NDArray[np.int32],
) -> int:
    """List rows that are not, and forget the ceilings of all; the new count."""
    for row in rows:
        if pages[row].listed == 0:
            candidates[count] = row
            count += 1
            pages[row].listed = count
        ceilings[pages[row].listed - 1] = _UNKNOWN
    return count


@compiled
def _unlist(pages: Rows, candidates: NDArray[np.int32], count: int) -> None:
    for place in range(count):
        pages[candidates[place]].listed = 0


@compiled
def _drop_picked(
    pages: Rows,
    candidates: NDArray[np.int32],
    ceilings: NDArray[np.float64],
    count: int,
    window_end: float,
    uniform: bool,
) -> int:
    """Drop candidates that were picked, and find the missing ceilings; the new count."""
    kept = 0
    for place in range(count):
        ceiling = ceilings[place]
        row = candidates[place]
        if ceiling == PICKED:
            pages[row].listed = 0
            continue
        if ceiling == _UNKNOWN:
            ceiling = priority_of(pages[row], window_end, uniform)
        ceilings[kept] = ceiling
        if kept < place:
            candidates[kept] = row
            pages[row].listed = kept + 1
        kept += 1
    return kept


class FullScan:
    """The selector that looks at everything, but seldom."""

    def __init__(self, space: Space, rules: Rules) -> None:
        self._space = space
        self._rules = rules
        self._candidates: NDArray[np.int32] = np.empty(256, np.int32)
        self._ceilings: NDArray[np.float64] = np.empty(256)
        self._count = 0
        self._holding: NDArray[np.int32] = np.empty(0, np.int32)
        self._cutoff = math.inf
        self._window_end = -math.inf
        self._trust = 1.0
        self.priorities: NDArray[np.float64] = np.empty(0)
        """Of every page at the end of the last scan's window; host limits aside."""
        self.scans = 0
        self.exhaustive_picks = 0
        """Slots for which all pages were looked at."""

    @property
    def candidates(self) -> int:
        """How many pages are looked at for each slot now."""
        return self._count

    def touch(self, rows: NDArray[np.int32]) -> None:
        """These pages are looked at for the next slots."""
        if self._window_end == -math.inf:
            return
        if self._count + rows.size > self._candidates.size:
            size = 2 * (self._count + rows.size)
            self._candidates = np.resize(self._candidates, size)
            self._ceilings = np.resize(self._ceilings, size)
        self._count = int(
            _add_candidates(self._space.pages, self._candidates, self._ceilings, self._count, rows)
        )

    def reset(self) -> None:
        """Scan before the next pick."""
        self._window_end = -math.inf

    def select(self, slots: NDArray[np.float64], rate: float, least: float) -> Rows:
        """Fill slots with the most urgent pages; see `Selector.select`."""
        picks = np.zeros(slots.size, PICK)
        done = 0
        while done < slots.size:
            if slots[done] > self._window_end or self._is_overgrown():
                self._scan(slots[done], rate)
            done += self._fill(slots[done:][:_SLOTS_AT_ONCE], rate, least, picks[done:])
        return picks

    def _is_overgrown(self) -> bool:
        """Whether so many pages were touched that a scan costs less than looking at them."""
        return self._count > 1024 and 4 * self._count > self._space.used

    def _fill(self, slots: NDArray[np.float64], rate: float, least: float, picks: Rows) -> int:
        """Fill slots of one window; at least the first is settled."""
        within = int(np.searchsorted(slots, self._window_end, side="right"))
        slots = slots[:within]
        settled = self._fill_certain(slots, least, picks)
        if settled == 0:
            self._trust = max(self._trust * _SHRINK, 1e-3)
            self._scan(slots[0], rate)
            settled = self._fill_certain(slots, least, picks)
        if settled == 0:
            self._pick_of_all(slots[0], least, picks)
            settled = 1
        return settled

    def _fill_certain(self, slots: NDArray[np.float64], least: float, picks: Rows) -> int:
        slots = slots[slots <= self._window_end]
        space, uniform = self._space, self._rules.uniform
        self._count = int(
            _drop_picked(
                space.pages,
                self._candidates,
                self._ceilings,
                self._count,
                self._window_end,
                uniform,
            )
        )
        return int(
            fill_slots(
                space.pages,
                space.host_rows,
                space.host_count,
                self._candidates,
                self._ceilings,
                self._count,
                self._holding,
                self._cutoff,
                slots,
                self._rules.request_timeout,
                least,
                uniform,
                picks,
            )
        )

    def _pick_of_all(self, now: float, least: float, picks: Rows) -> None:
        self.exhaustive_picks += 1
        space, uniform = self._space, self._rules.uniform
        row, _ = best_now(space.pages, space.used, space.host_rows, now, least, uniform)
        picks[0]["time"] = now
        picks[0]["row"] = row
        if row >= 0:
            timeout = self._rules.request_timeout
            commit(space.pages, space.host_rows, picks[0], row, now, timeout, uniform)

    def _window(self, rate: float) -> float:
        """Length of the next window: scans and candidates cost the same, if all goes well."""
        wall_rate = max(rate * self._rules.speed, 1e-9)
        best = math.sqrt(self._space.used / (MARGIN * wall_rate * _TICKS_PER_SECOND))
        wall = min(max(best * self._trust, _SHORTEST_WINDOW), _LONGEST_WINDOW)
        return min(wall * self._rules.speed, self._rules.request_timeout / 2)

    def _scan(self, start: float, rate: float) -> None:
        space = self._space
        length = self._window(rate)
        _unlist(space.pages, self._candidates, self._count)
        if self.priorities.size < space.pages.size:
            self.priorities = np.zeros(space.pages.size)
        self._window_end = start + length
        evaluate(space.pages, space.used, self._window_end, self._rules.uniform, self.priorities)
        rows, self._cutoff, self._holding = choose_candidates(
            space.pages,
            space.used,
            space.host_rows,
            space.host_count,
            start,
            self._window_end,
            rate * length,
            self.priorities,
        )
        self._count = 0
        self.touch(rows)
        self._ceilings[: rows.size] = self.priorities[rows]
        self._trust = min(self._trust * _GROW, 1.0)
        self.scans += 1
