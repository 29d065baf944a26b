"""Time as something that is handed in: real, accelerated, or set by a test."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from shared.runtime.wall_time import WALL


class Reading(NamedTuple):
    """A look at a clock."""

    now: float
    """Unix seconds."""
    stepped: float
    """By how many clock seconds it was set forward since the process began, all in all; what
    remembers times of this clock moves them by the change."""


class Clock(Protocol):
    """What a worker asks for the time.

    The clock's time is the time of the web: message times, ages, rates and deadlines. Durations
    of the machinery (ticks, timeouts, back-off) are seconds of the wall, because networks and
    processors do not run faster when the web does; `span` converts them.
    """

    @property
    def speed(self) -> float:
        """Clock seconds that pass in one second of the wall."""
        ...

    def now(self) -> float:
        """The time in Unix seconds."""
        ...

    def read(self) -> Reading:
        """The time, and by how much it was set."""
        ...

    def span(self, wall_seconds: float) -> float:
        """Clock seconds that pass in so many seconds of the wall."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The real time: the brokers', as far as it is known (see `WallTime`)."""

    speed: float = 1.0

    def now(self) -> float:
        """The time in Unix seconds."""
        return WALL.now()

    def read(self) -> Reading:
        """The time, and by how much it was set."""
        return Reading(*WALL.read())

    def span(self, wall_seconds: float) -> float:
        """The same number: this clock runs with the wall."""
        return wall_seconds


class AcceleratedClock:
    """A simulated time that all processes of a run share.

    It stands at its origin until the gate file appears, whose text is the wall time (Unix
    seconds) at which it started; so the processes can take their time to get ready.
    """

    def __init__(self, origin: float, speed: float, gate: Path) -> None:
        self.origin = origin
        self._speed = speed
        self._gate = gate
        self._started_at: float | None = None
        self._stepped_before = 0.0
        """By how much the wall's time was set before the gate opened: that moved nothing."""

    @property
    def speed(self) -> float:
        """Clock seconds that pass in one second of the wall, once it runs."""
        return self._speed

    def now(self) -> float:
        """The simulated time in Unix seconds."""
        return self.read().now

    def read(self) -> Reading:
        """The simulated time, and by how much it was set."""
        wall, stepped = WALL.read()
        if self._started_at is None:
            self._started_at = self._read_gate()
            self._stepped_before = stepped
        if self._started_at is None:
            return Reading(self.origin, 0.0)
        passed = max(wall - self._started_at, 0.0)
        return Reading(
            self.origin + passed * self._speed, (stepped - self._stepped_before) * self._speed
        )

    def span(self, wall_seconds: float) -> float:
        """Clock seconds that pass in so many seconds of the wall."""
        return wall_seconds * self._speed

    def _read_gate(self) -> float | None:
        try:
            return float(self._gate.read_text())
        except (OSError, ValueError):
            return None


def open_gate(gate: Path) -> None:
    """Start the clocks that wait at a gate file."""
    waiting = gate.with_suffix(".new")
    waiting.write_text(repr(WALL.now()))
    waiting.rename(gate)


@dataclass(slots=True)
class ManualClock:
    """A time that only moves when it is told to."""

    time: float = 0.0
    speed: float = 1.0
    stepped: float = 0.0

    def now(self) -> float:
        """The time that was set, Unix seconds."""
        return self.time

    def read(self) -> Reading:
        """The time that was set, and the sum of all steps."""
        return Reading(self.time, self.stepped)

    def span(self, wall_seconds: float) -> float:
        """Clock seconds that pass in so many seconds of the wall."""
        return wall_seconds * self.speed

    def advance(self, seconds: float) -> None:
        """Move on by so many clock seconds."""
        self.time += seconds

    def step(self, seconds: float) -> None:
        """Be set forward, or back, by so many clock seconds: as if somebody had corrected it."""
        self.time += seconds
        self.stepped += seconds
