"""How far all pages have been placed anew, since the guard was lowered. Pure."""

from dataclasses import dataclass
from typing import Final

_MOST_AT_ONCE: Final = 0.05
"""Of the pages that are placed at a tick, however long ago the last one was."""


@dataclass(slots=True)
class Sweep:
    """A look at all rows, some at each tick."""

    _next_row: int = -1
    """Where it goes on; -1: it is done."""
    _at: float = 0.0
    _seconds: float = 1.0

    @property
    def goes_on(self) -> bool:
        """Whether rows are left."""
        return self._next_row >= 0

    def part(self, used: int) -> float:
        """Part of the rows that are done."""
        return self._next_row / used if self.goes_on else 1.0

    def begin(self, now: float, seconds: float) -> None:
        """Begin with the first row, to be done in so many seconds of the clock."""
        self._next_row, self._at, self._seconds = 0, now, seconds

    def end(self) -> None:
        """No rows are left."""
        self._next_row = -1

    def take(self, rows: int, used: int) -> tuple[int, int]:
        """Go on with some rows of those that are used: from one on, to before another."""
        first, end = self._next_row, min(self._next_row + rows, used)
        self._next_row = end if end < used else -1
        return first, end

    def due(self, now: float, used: int) -> int:
        """How many of the rows are to be looked at now; time goes on from here."""
        part = min((now - self._at) / self._seconds, _MOST_AT_ONCE)
        self._at = now
        return int(used * part)
