"""Ending what waits for others."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

_AGAIN_SECONDS: Final = 0.1


async def until_stopped(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run work to its end, or cut it off where it stands once `stopping` is set.

    Raises:
        Exception: what the work raised.
    """
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        await end(working, stopped)


async def end(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel tasks until they have ended, however they do.

    Once is not enough: before Python 3.12, `asyncio.wait_for` swallows a cancellation that comes
    with the answer that it waits for, and whoever asks again and again would go on.
    """
    left: set[asyncio.Future[Any]] = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
