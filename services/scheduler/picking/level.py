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
"""Wall seconds for which it is taken to fall, where nobody knows yet what there is to be picked; or
until it is seen not to."""

_SEEN: Final = 5.0
"""Wall seconds whose least pick is compared with that of as many before."""

_NO_LESS, _NO_MORE = 0.999, 1.2
"""Who picks from so much to so much of what was picked before picks as much: who picks more soon
picks less again, as when many pages have come to be worth more."""


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
    _seen_until: float = math.inf
    _seen: float = math.inf
    """Least pick of the seconds until then ..."""
    _seen_before: float = math.inf
    """... and of those before them."""

    def note(self, highest: float, now: float, speed: float) -> bool:
        """Slots were filled.

        Args:
            highest: what was picked at least; 0: slots stayed empty; `HIGHEST_VALUE`: the upper
                tiers took all.
            now: clock seconds.
            speed: clock seconds in a second of the wall.

        Returns:
            whether it is seen now that as much is picked as before, which nobody knew.
        """
        self.least, is_seen = _after(self.least, highest), False
        if highest == HIGHEST_VALUE or self._doubted_until == math.inf:
            self._doubted_until = now + _DOUBTED * speed
            self._seen_until, self._seen, self._seen_before = now, math.inf, math.inf
        if now < self._doubted_until and 0.0 < highest < HIGHEST_VALUE:
            is_seen = self._look(highest, now, speed)
        if highest > 0.0:
            self._known = _after(self._known, highest)
            present = math.log(self._known)
            passed = (now - self._noted_at) / (_OF_LATE * speed)
            before = present if now < self._doubted_until else self._of_late
            self._of_late = present + (before - present) * math.exp(-passed)
            self._noted_at = now
        return is_seen

    def _look(self, highest: float, now: float, speed: float) -> bool:
        """Whether as much is picked as before, where nobody knows yet; while ever less is, the
        doubt goes on."""
        before, last = self._seen_before, self._seen
        if now < self._seen_until:
            self._seen = min(last, highest)
            return False
        self._seen_until = now + _SEEN * speed
        self._seen_before, self._seen = last, highest
        if before == math.inf:
            return False
        if last < _NO_LESS * before:
            self._doubted_until = max(self._doubted_until, now + 2 * _SEEN * speed)
        elif last <= _NO_MORE * before:
            self._doubted_until = now
        return self._doubted_until == now

    def falls(self, now: float) -> bool:
        """Whether ever less is picked, as after a standstill: pages waited for long, and the best
        of them are crawled first. Or nobody knows: right after a load, or after new pages."""
        if now < self._doubted_until:
            return True
        return math.log(self._known) < self._of_late - _FALL


def _after(level: float, highest: float) -> float:
    """The level after slots of which `highest` was the least that was picked."""
    return min(highest, level + _RISE * (highest - level))
