"""How many pages should be listed, which is what the guard follows. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.filled import Filled
from services.scheduler.picking.priority import HIGHEST_VALUE, LEAST_NEW

SPARE: Final = 256
"""Pages that are listed beyond all that is expected: how many there are wanders, as slots take as
many as there are, and who comes up in the calendar does so by chance."""

_USUAL_RATE: Final = 1e-2
"""Crawls a second for each page, where nobody has said yet how many there will be: rather many, up
to the next one."""

_MOST_USUAL: Final = 10_000.0

_LEAST_RATE: Final = 1e-9
"""Crawls a second, where nobody knows of any."""

_MANY_SECONDS: Final = 20.0
"""Wall seconds of crawling for which the guard is lowered when it has to be, at most."""

_AHEAD_SECONDS: Final = 45.0
"""Wall seconds of crawling that are listed while ever less is picked, at most: they suffice until
the guard is lower, wherever it has to be lowered in time."""

_MOST_AHEAD: Final = 1 / 16
"""Of all pages: where that is less, they are crawled so fast that the guard is lowered faster."""

_LEAST_AHEAD_SECONDS: Final = 4.5
"""... but no faster, or to place very many pages anew would take too much of each tick."""

_SWEPT: Final = 2 / 3
"""Of the time for which pages are listed ahead, to lower the guard in."""

_FAT: Final = 2
"""Stocks: where more are listed, the guard is raised."""

_LEAN: Final = 0.125
"""... and where fewer are, it is lowered."""

_CROWDED: Final = 2
"""Where so many times more are listed than should be, it pays to find the s* of pages that come
from the calendar anew: theirs is of a guard of before. A sample tells how far to raise it."""

_LONG: Final = 65_536
"""To look through a longer list takes too much of a tick."""

_OFTEN: Final = 16
"""Times that pages would be looked at before they are picked, from which on it pays to find out
until when each need not be."""

_LOOKED_AT: Final = 0.25
"""Of the way from what is picked to the guard, at most: only listed pages that will come so near
are looked at. Had others to be, all would be, which costs more than to look at a few more."""

_ENOUGH: Final = 32
"""Times the slots that are filled at once: so many listed pages are looked at, about."""

_LOOKED_AT_FIRST: Final = 4
"""Times as many as are to be listed at least, before any is picked."""

_PATIENCE_TICKS: Final = 3.0
"""Pages stay listed that would be picked, or back from the calendar, in about so many ticks."""

_SHED_SHARE: Final = 1 / 16
"""Part of the listed pages that may go back to the calendar at once, where very many are listed."""


class LookedAt(NamedTuple):
    """Which of the listed pages are looked at."""

    skip_below: float
    """Those need not be that are worth less."""
    span: float
    """How far that is below what is picked."""


@dataclass(frozen=True, slots=True)
class Stock:
    """Of the pages that are listed after slots were filled."""

    wanted: int
    many: int
    """How many more are to be listed after there were too few."""
    ahead: int
    """How many are to stay listed where ever less is picked."""
    until_swept: int
    """How many are crawled while the guard is lowered ..."""
    sweep_seconds: float
    """... which takes so many wall seconds."""

    @classmethod
    def of(cls, slots: int, rate: float, pages: int) -> "Stock":
        """What is wanted of so many pages where so many slots are filled at once, and so many in a
        wall second."""
        wanted = int(max(slots, rate) / 4) + SPARE
        most = max(_MOST_AHEAD * pages / max(rate, _LEAST_RATE), _LEAST_AHEAD_SECONDS)
        ahead = min(most, _AHEAD_SECONDS)
        swept = _SWEPT * ahead
        many = int(min(ahead, _MANY_SECONDS) * rate) + 8 * wanted
        return cls(wanted, many, int(ahead * rate), int(swept * rate), swept)

    @classmethod
    def usual(cls, pages: int) -> "Stock":
        """What is wanted of so many pages before the first slots are filled."""
        return cls.of(0, min(_USUAL_RATE * pages, _MOST_USUAL), pages)

    def at_first(self, pages: int) -> int:
        """How many of so many pages are listed before any is picked: what waits for a crawl may be
        far more than usual."""
        return min(max(16 * self.wanted, self.ahead), pages // 16)

    def needed(self, filled: Filled) -> tuple[int, float]:
        """How many pages should be listed, and the most that the guard may be (0: as it is).

        Slots that went to the upper tiers may go to listed pages next: these must suffice for them.
        While the upper tiers take all, nothing tells what will be picked after them.
        """
        if filled.crawls < filled.slots:
            return self.wanted, 0.0
        if not filled.by_value:
            return self.wanted + self.many, HIGHEST_VALUE
        return self.wanted + filled.slots - filled.by_value, filled.least_by_value

    def kept(self, needed: int, *, is_held: bool, is_falling: bool) -> int:
        """How many stay listed.

        Args:
            needed: at least.
            is_held: the guard was lowered of late, or is being lowered.
            is_falling: see `Level.falls`.
        """
        if is_held:
            needed = max(needed, self.wanted + self.many)
        if is_falling:
            needed = max(needed, self.wanted + self.ahead)
        return needed

    def most(self, kept: int) -> int:
        """How many may be listed where so many are to stay."""
        return kept + (_FAT - 1) * self.wanted

    def swept(self, *, is_falling: bool) -> int:
        """How many more the guard is lowered for."""
        return max(self.many, self.ahead) if is_falling else self.many

    def is_lean(self, filled: Filled, listed: int, urgent: int, *, is_falling: bool) -> bool:
        """Whether the guard is too high, or will be before it can be lowered. It does not matter
        while the upper tiers take all slots, and will until long after it was lowered: what others
        are worth by then nobody knows yet."""
        if not filled.by_value and urgent > self.many + self.until_swept:
            return False
        return listed < max(_LEAN * self.wanted, self.until_swept if is_falling else 0)

    def spared_seconds(self, filled: Filled, urgent: int) -> float:
        """Wall seconds for which the upper tiers, of which so many wait, take all slots: in which
        the guard may be lowered before anything else is picked; `sweep_seconds` at most."""
        if filled.by_value or filled.crawls < filled.slots:
            return 0.0
        return self.sweep_seconds * min(urgent / max(self.until_swept, 1), 1.0)

    def looked_at_first(self, priorities: NDArray[np.float64]) -> LookedAt:
        """Which listed pages are looked at for the first slots, by what all of them are worth."""
        if priorities.size <= 2 * _LOOKED_AT_FIRST * self.wanted:
            return LookedAt(0.0, 0.0)
        last = priorities.size - 1
        places = last - self.wanted, last - _LOOKED_AT_FIRST * self.wanted
        level, skip_below = np.partition(priorities, places)[list(places)].tolist()
        return LookedAt(skip_below, level - skip_below)

    def looked_at(
        self, filled: Filled, listed: int, urgent: int, level: float, guard: float
    ) -> LookedAt:
        """Which listed pages are looked at for the next slots.

        Args:
            filled: the last slots.
            listed: pages that are listed now.
            urgent: pages of the upper tiers that wait.
            level: least value that is picked (`Level`).
            guard: of pages that are placed now.
        """
        if filled.least >= LEAST_NEW and urgent >= filled.slots:
            return LookedAt(LEAST_NEW, 0.0)
        if listed > _OFTEN * filled.slots and level > guard:
            span = min(_ENOUGH * filled.slots / listed, _LOOKED_AT) * (level - guard)
            return LookedAt(level - span, span)
        # Otherwise most are picked so soon that looking at all costs less than finding bounds.
        return LookedAt(0.0, 0.0)


def reached_by(priorities: NDArray[np.float64], drawn: int, listed: int, kept: int) -> float:
    """What about so many of the listed pages are worth at least, by a sample of the list.

    Args:
        priorities: of the pages at the places that were drawn.
        drawn: places; pages have left some of them, and no fewer of the whole list.
        listed: places of the list.
        kept: pages.

    Returns:
        0 where there are no more than that.
    """
    rank = round(kept / listed * drawn)
    return float(np.sort(priorities)[::-1][rank]) if rank < priorities.size else 0.0


def is_crowded(listed: int, most: int) -> bool:
    """Whether far too many are listed, or too many to look through."""
    return listed > min(_CROWDED * most, max(most, _LONG))


def patience(slots: int, needed: int) -> float:
    """How far below the guard pages stay listed, in distances from there to what was picked."""
    return _PATIENCE_TICKS * slots / needed


def shed_at_once(listed: int, least: int, most: int) -> int:
    """How many of the listed pages may go back to the calendar at a tick."""
    return max(least, min(int(_SHED_SHARE * listed), most))


def is_hardly_shed(gone: int, listed: int) -> bool:
    """Whether hardly any of the listed pages went back to the calendar."""
    return gone < _SHED_SHARE * listed
