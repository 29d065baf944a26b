"""Looking up the names of hosts, in threads that nobody else waits for.

The system's resolver cannot be told to stop: servers of a name that never answer keep a thread for
half a minute, whoever asked has given up long before, and an event loop has few threads by itself,
for all that takes long. A stranger who names such hosts would take all of them.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, cast

from aiohttp import ThreadedResolver

THREADS: Final = 256
"""At most; there are as many as were ever needed at once. Names beyond them wait."""


class NameThreads(ThreadedResolver):
    """aiohttp's resolver, with threads of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "names")
        super().__init__(cast(asyncio.AbstractEventLoop, _Lookups(self._pool)))

    def stop(self) -> None:
        """Look nothing more up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Lookups:
    """What a resolver asks an event loop for."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    async def getaddrinfo(self, host: str, port: int, **how: Any) -> Any:
        """As `socket.getaddrinfo`."""
        return await self._looked_up(partial(socket.getaddrinfo, host, port, **how))

    async def getnameinfo(self, address: Any, flags: int) -> Any:
        """As `socket.getnameinfo`."""
        return await self._looked_up(partial(socket.getnameinfo, address, flags))

    async def _looked_up(self, question: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, question)
