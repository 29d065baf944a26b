"""Where shards are looked at and changed."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ShardThread:
    """The one thread in which shards are looked at and changed: no locks, and a free event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "shards")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function there, after all that was asked for before."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Let it finish what it has at hand."""
        self._executor.shutdown()
