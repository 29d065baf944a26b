"""Simulated processes: whose turn it is, what clock it sees, whether it stands still or is dead."""

from collections import deque
from contextvars import Context, ContextVar
from typing import Any, Final


class Killed(BaseException):
    """Raised in what a process does in a thread when the process ends on the spot."""


class Process:
    """A process of the simulation; what belongs to it finds it in its context."""

    def __init__(self, name: str, clock_offset: float = 0.0) -> None:
        self.name = name
        self.number = 0
        """Of the process in the order in which they began."""
        self.clock_offset = clock_offset
        """Seconds by which its wall clock is ahead of the true time."""
        self.queue: deque[Any] = deque()
        """What is ready to run, the first first."""
        self.is_paused = False
        self.is_dead = False

    def context(self) -> Context:
        """A context in which everything belongs to this process."""
        context = Context()
        context.run(CURRENT.set, self)
        return context


OUTSIDE: Final = Process("outside")
"""Whoever runs the simulation, and the servers in it."""

CURRENT: ContextVar[Process] = ContextVar("simulated_process", default=OUTSIDE)
"""The process that whatever runs now belongs to."""


def current() -> Process:
    """The process whose turn it is."""
    return CURRENT.get()
