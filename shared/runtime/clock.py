"""Time as something that is handed in: real, accelerated, or set by a test."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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

    def span(self, wall_seconds: float) -> float:
        """Clock seconds that pass in so many seconds of the wall."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The real time."""

    speed: float = 1.0

    def now(self) -> float:
        """The time in Unix seconds."""
        return time.time()

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

    @property
    def speed(self) -> float:
        """Clock seconds that pass in one second of the wall, once it runs."""
        return self._speed

    def now(self) -> float:
        """The simulated time in Unix seconds."""
        if self._started_at is None:
            self._started_at = self._read_gate()
        if self._started_at is None:
            return self.origin
        return self.origin + max(time.time() - self._started_at, 0.0) * self._speed

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
    waiting.write_text(repr(time.time()))
    waiting.rename(gate)


@dataclass(slots=True)
class ManualClock:
    """A time that only moves when it is told to."""

    time: float = 0.0
    speed: float = 1.0

    def now(self) -> float:
        """The time that was set, Unix seconds."""
        return self.time

    def span(self, wall_seconds: float) -> float:
        """Clock seconds that pass in so many seconds of the wall."""
        return wall_seconds * self.speed

    def advance(self, seconds: float) -> None:
        """Move on by so many clock seconds."""
        self.time += seconds
