"""How the benchmarks of single functions take their time."""

import time
from collections.abc import Callable


def best_seconds(function: Callable[[], object], *, repeats: int = 5) -> float:
    """The shortest of ``repeats`` runs, after one that compiles and warms up."""
    function()
    shortest = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest
