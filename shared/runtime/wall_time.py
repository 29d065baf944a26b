"""The time of the wall, as all processes of an installation agree on it.

Schedulers on several machines fill the slots of one sequence, each at its own time, and a message
counts if the broker had it in time. So the broker's time is the one that all go by. A process
takes the time from its machine when it starts, and counts on by a clock that nobody can set; a
worker then measures where the broker's time lies (`shared.runtime.clock_offset`), and goes by that.
Whoever sets the machine's clock sets nothing here.
"""

import threading
import time
from dataclasses import dataclass
from typing import Final

STEP_SECONDS: Final = 0.2
"""A time that is off by more is set at once: plans take effect this near to when they are known."""

SLEW: Final = 0.05
"""A smaller error is worked off at this rate: the time runs by so much faster or slower, and never
goes back."""

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps, where there is such a clock."""


def steady() -> float:
    """Seconds of a clock that nobody sets, from an origin of its own."""
    return time.clock_gettime(_STEADY)


@dataclass(frozen=True, slots=True)
class _Course:
    """How the time differs from the steady clock."""

    offset: float
    """At `since`."""
    since: float
    """Steady seconds."""
    target: float
    """Where the offset goes, at `SLEW`."""

    def offset_at(self, moment: float) -> float:
        most = SLEW * max(moment - self.since, 0.0)
        return self.offset + min(max(self.target - self.offset, -most), most)


class WallTime:
    """Unix time of this process. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begin with the machine's time."""
        self._lock = threading.Lock()
        moment = steady()
        offset = time.time() - moment
        self._course = _Course(offset, moment, offset)
        self._stepped = 0.0

    def now(self) -> float:
        """Unix seconds."""
        return self.read()[0]

    def read(self) -> tuple[float, float]:
        """Unix seconds, and by how many the time was set forward since the start, all in all."""
        with self._lock:
            moment = steady()
            return moment + self._course.offset_at(moment), self._stepped

    def steer(self, least: float, most: float) -> float:
        """Go by another's time, as far as it is proven to differ from ours.

        Args:
            least: another's time less our steady clock, at least.
            most: the same, at most.

        Returns:
            by how many seconds our time was set at once; 0: it is near enough, or gets there
            slowly.
        """
        with self._lock:
            moment = steady()
            offset = self._course.offset_at(moment)
            target = min(max(offset, least), most)
            error = target - offset
            if abs(error) <= STEP_SECONDS:
                self._course = _Course(offset, moment, target)
                return 0.0
            self._course = _Course(target, moment, target)
            self._stepped += error
            return error


WALL: Final = WallTime()
"""Of this process."""
