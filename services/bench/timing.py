"""How the benchmarks of single functions take their time."""

import time
from collections.abc import Callable

thread_seconds = time.thread_time
"""The clock of what runs on one thread: seconds of processor time, which other programs on the
machine do not lengthen."""


def best_seconds(
    function: Callable[[], object],
    *,
    repeats: int = 5,
    clock: Callable[[], float] = thread_seconds,
) -> float:
    """The shortest of ``repeats`` runs, after one that compiles and warms up.

    What uses several threads is timed with ``clock=time.perf_counter``.
    """
    function()
    shortest = float("inf")
    for _ in range(repeats):
        started = clock()
        function()
        shortest = min(shortest, clock() - started)
    return shortest
