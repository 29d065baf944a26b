"""What is waited for meanwhile: the next answer comes while the last one is worked on."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def ahead(calls: Sequence[Callable[[], T]], at_once: int = 1) -> Iterator[Iterator[T]]:
    """The results of calls in their order, which threads make one after the other.

    At the end none of them is under way, and those that have not begun are not made.

    Args:
        calls: that have nothing to do with what is done with the results of those before.
        at_once: how many of them may be under way.
    """
    if not calls:
        yield iter(())
        return
    with ThreadPoolExecutor(at_once, "ahead") as pool:
        results = [pool.submit(call) for call in calls]
        try:
            yield (result.result() for result in results)
        finally:
            pool.shutdown(cancel_futures=True)
