"""About what the least value is that is picked, and whether it falls. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from services.scheduler.picking.priority import HIGHEST_VALUE

_RISE: Final = 0.1
"""What is picked at least is taken to fall at once, and to rise by so much of the difference at
each tick: the few picks of one say little."""

_FALL: Final = math.log(1.2)
"""Ever less is picked where it was so many times as much of late, on average (a logarithm)."""

_OF_LATE: Final = 60.0
"""Wall seconds in which what was picked before counts an e-th: whoever falls more slowly is still
worth four fifths when the guard has been lowered."""

_DOUBTED: Final = 60.0
"""Wall seconds for which it is taken to fall, where nobody knows yet what there is to be picked."""


@dataclass(slots=True)
class Level:
    """The least value that is picked, over some ticks."""

    least: float = HIGHEST_VALUE
    """0 where slots stayed empty."""
    _known: float = HIGHEST_VALUE
    """... when they last did not: that slots stay empty does not tell what pages are worth."""
    _of_late: float = 0.0
    """Logarithm of what that was of late, on average."""
    _noted_at: float = -math.inf
    _doubted_until: float = math.inf

    def note(self, highest: float, now: float, speed: float) -> None:
        """Slots were filled.

        Args:
            highest: what was picked at least; 0: slots stayed empty; `HIGHEST_VALUE`: the upper
                tiers took all.
            now: clock seconds.
            speed: clock seconds in a second of the wall.
        """
        self.least = _after(self.least, highest)
        if highest == HIGHEST_VALUE or self._doubted_until == math.inf:
            self._doubted_until = now + _DOUBTED * speed
        if highest > 0.0:
            self._known = _after(self._known, highest)
            present = math.log(self._known)
            passed = (now - self._noted_at) / (_OF_LATE * speed)
            before = present if now < self._doubted_until else self._of_late
            self._of_late = present + (before - present) * math.exp(-passed)
            self._noted_at = now

    def falls(self, now: float) -> bool:
        """Whether ever less is picked, as after a standstill: pages waited for long, and the best
        of them are crawled first. Or nobody knows: right after a load, or after new pages."""
        if now < self._doubted_until:
            return True
        return math.log(self._known) < self._of_late - _FALL


def _after(level: float, highest: float) -> float:
    """The level after slots of which `highest` was the least that was picked."""
    return min(highest, level + _RISE * (highest - level))
