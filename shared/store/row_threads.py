"""Work on many rows that lets go of the interpreter, by as many threads as there are processors."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Result = TypeVar("Result")

MOST_THREADS: Final = 4
"""That work for one shard: more of them wait for memory."""

ROWS_AT_ONCE: Final = 1 << 16
"""Some megabytes, which a processor keeps near."""


def threads() -> int:
    """How many work for one shard: one a processor that this process may use."""
    may_use = getattr(os, "sched_getaffinity", None)
    processors = len(may_use(0)) if may_use else os.cpu_count() or 1
    return min(processors, MOST_THREADS)


def in_slices(
    work: Callable[[slice], Result], rows: int, at_once: int = ROWS_AT_ONCE
) -> Iterator[Result]:
    """What work gives for slices of so many rows, in their order.

    A slice is worked on while what came before it is looked at. All that was begun has ended when
    the iterator has, or has raised what the work did.

    Args:
        work: called in several threads at once, each time for other rows.
        rows: of which slices are made.
        at_once: rows in a slice.
    """
    slices = [slice(first, min(first + at_once, rows)) for first in range(0, rows, at_once)]
    if len(slices) <= 1:
        yield from map(work, slices)
        return
    with ThreadPoolExecutor(threads(), "rows") as pool:
        yield from pool.map(work, slices)
