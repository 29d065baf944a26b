"""What the workers see of the time: `time.time` and its like, from the virtual time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import CURRENT

BEGINNING: Final = 1_900_000_000.0
"""Unix seconds at which simulations begin."""

MONOTONIC: Final = 10_000.0
"""What monotonic clocks show then."""


@contextmanager
def virtual_clocks(loop: VirtualLoop) -> Iterator[None]:
    """Let everybody see the virtual time, each process by its own clock.

    Modules call `time.time()` and not a name of their own, so it is enough to change the module.
    What a thread has spent of a processor is nothing.
    """

    def wall() -> float:
        return BEGINNING + loop.now + CURRENT.get().clock_offset

    def monotonic() -> float:
        return MONOTONIC + loop.now

    def spent() -> float:
        return 0.0

    replaced = {
        "time": wall,
        "monotonic": monotonic,
        "perf_counter": monotonic,
        "thread_time": spent,
        "process_time": spent,
    }
    before = {name: getattr(time, name) for name in replaced}
    for name, function in replaced.items():
        setattr(time, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(time, name, function)
