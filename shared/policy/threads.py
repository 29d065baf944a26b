"""How many of numba's threads the parallel variants of the column functions may use."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Use at most ``threads`` of numba's threads inside the block."""
    before = numba.get_num_threads()
    numba.set_num_threads(max(1, min(threads, int(numba.config.NUMBA_NUM_THREADS))))
    try:
        yield
    finally:
        numba.set_num_threads(before)
