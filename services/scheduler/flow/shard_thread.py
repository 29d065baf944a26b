"""Where shards are looked at and changed."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ShardThread:
    """The one thread in which shards are looked at and changed: no locks, and a free event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "shards")
        self._first: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._took = 0.0
        """Seconds that the last of those took that went first."""
        self._ended = -float("inf")
        """When it was over, `time.perf_counter`."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function there, after all that was asked for before."""

        def work() -> T:
            if self._may_go_first():
                self._do_first()
            return function(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def run_first(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function there before all that waits; what is at hand goes on to its end.

        Others get half of the time: where these functions take more, they wait as others do.
        """
        asked: Future[T] = Future()
        self._first.append((asked, lambda: function(*args, **kwargs)))
        asyncio.get_running_loop().run_in_executor(self._executor, self._do_first)
        return await asyncio.wrap_future(asked)

    def _may_go_first(self) -> bool:
        return bool(self._first) and time.perf_counter() - self._ended >= self._took

    def _do_first(self) -> None:
        """Do the first of what goes first, if nobody has done it."""
        if not self._first:
            return
        asked, function = self._first.popleft()
        if not asked.set_running_or_notify_cancel():
            return
        began = time.perf_counter()
        try:
            asked.set_result(function())
        except BaseException as error:
            asked.set_exception(error)
        self._ended = time.perf_counter()
        self._took = self._ended - began

    def close(self) -> None:
        """Let it finish what it has at hand."""
        self._executor.shutdown()
