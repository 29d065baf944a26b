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

_LEAST: Final = 1e-300
"""Less is taken for this."""

_DOUBTED: Final = 60.0
"""Wall seconds for which it is taken to fall, where nobody knows yet what there is to be picked."""


@dataclass(slots=True)
class Level:
    """The least value that is picked, over some ticks."""

    least: float = HIGHEST_VALUE
    _of_late: float = 0.0
    """Logarithm of what it was of late, on average."""
    _noted_at: float = -math.inf
    _doubted_until: float = math.inf

    def note(self, highest: float, now: float, speed: float) -> None:
        """Slots were filled.

        Args:
            highest: what was picked at least; `HIGHEST_VALUE` where the upper tiers took all.
            now: clock seconds.
            speed: clock seconds in a second of the wall.
        """
        self.least = min(highest, self.least + _RISE * (highest - self.least))
        present = self._logarithm
        if highest == HIGHEST_VALUE or self._doubted_until == math.inf:
            self._doubted_until = now + _DOUBTED * speed
        if now < self._doubted_until:
            self._of_late = present
        passed = (now - self._noted_at) / (_OF_LATE * speed)
        self._of_late = present + (self._of_late - present) * math.exp(-passed)
        self._noted_at = now

    def falls(self, now: float) -> bool:
        """Whether ever less is picked, as after a standstill: pages waited for long, and the best
        of them are crawled first. Or nobody knows: right after a load, or after new pages."""
        has_fallen = self._logarithm < self._of_late - _FALL
        return now < self._doubted_until or has_fallen

    @property
    def _logarithm(self) -> float:
        return math.log(max(self.least, _LEAST))
