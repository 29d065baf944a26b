"""What the workers see of the time: `time.time` and its like, from the virtual time."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import CURRENT, Process
from shared.runtime.wall_time import WALL, WallTime

BEGINNING: Final = 1_900_000_000.0
"""Unix seconds at which simulations begin."""

MONOTONIC: Final = 10_000.0
"""What monotonic clocks show then."""


@contextmanager
def virtual_clocks(loop: VirtualLoop) -> Iterator[None]:
    """Let everybody see the virtual time, each process by its own clock.

    Each process also has a `WALL` of its own, which begins with its clock and goes by the broker's
    time from then on. Modules call `time.time()` and not a name of their own, so it is enough to
    change the module. What a thread has spent of a processor is nothing.
    """

    def wall() -> float:
        return BEGINNING + loop.now + CURRENT.get().clock_offset

    def monotonic() -> float:
        return MONOTONIC + loop.now

    def steady(_clock: int) -> float:
        return monotonic()

    def spent() -> float:
        return 0.0

    walls: dict[Process, WallTime] = {}

    def own_wall() -> WallTime:
        process = CURRENT.get()
        if process not in walls:
            walls[process] = WallTime()
        return walls[process]

    agreed: dict[str, Any] = {
        "now": lambda: own_wall().now(),
        "read": lambda: own_wall().read(),
        "steer": lambda least, most: own_wall().steer(least, most),
    }

    replaced: dict[str, Any] = {
        "time": wall,
        "monotonic": monotonic,
        "clock_gettime": steady,
        "perf_counter": monotonic,
        "thread_time": spent,
        "process_time": spent,
    }
    captured = _captured()
    for name, substitute in replaced.items():
        setattr(time, name, substitute)
    for name, substitute in agreed.items():
        setattr(WALL, name, substitute)
    for function, defaults in captured:
        function.__defaults__ = tuple(
            replaced[_ORIGINALS[one]] if _is_clock(one) else one for one in defaults
        )
    try:
        yield
    finally:
        for function, defaults in captured:
            function.__defaults__ = defaults
        for original, name in _ORIGINALS.items():
            setattr(time, name, original)
        for name in agreed:
            delattr(WALL, name)


_ORIGINALS: Final[dict[Any, str]] = {
    getattr(time, name): name
    for name in (
        *("time", "monotonic", "clock_gettime"),
        *("perf_counter", "thread_time", "process_time"),
    )
}


def _is_clock(value: Any) -> bool:
    return isinstance(value, BuiltinFunctionType) and value in _ORIGINALS


@cache
def _captured() -> list[tuple[Any, tuple[Any, ...]]]:
    """Functions of ours that have a clock as the default of an argument, with their defaults."""
    found: list[tuple[Any, tuple[Any, ...]]] = []
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(("services.", "shared.")):
            continue
        for value in list(vars(module).values()):
            if getattr(value, "__module__", None) != name:
                continue
            for one in (value, *vars(value).values()) if isinstance(value, type) else (value,):
                defaults = one.__defaults__ if isinstance(one, FunctionType) else None
                if defaults and any(_is_clock(default) for default in defaults):
                    found.append((one, defaults))
    return found
