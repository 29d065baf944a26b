"""Streams in both directions: what comes is answered as it is done, within a bound."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from shared.runtime.stopping import end

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Stopping(Exception):
    """The worker stops: nothing more is taken, and what was taken is answered."""


async def answered(
    items: AsyncIterator[Item],
    answer: Callable[[Item], Awaitable[Answer]],
    most: int,
    stopping: asyncio.Event,
) -> AsyncIterator[Answer]:
    """Answers to items, in the order in which they are done.

    Args:
        items: as the client sends them; no more are read while `most` are not answered.
        answer: to one item; does not raise.
        most: items at once.
        stopping: no item is read after it is set.

    Raises:
        Stopping: all that was read before is answered.
    """
    room = asyncio.Semaphore(most)
    done: asyncio.Queue[asyncio.Future[Answer] | None] = asyncio.Queue()
    working: set[asyncio.Future[Answer]] = set()

    async def read() -> None:
        await room.acquire()
        async for item in items:
            work = asyncio.ensure_future(answer(item))
            working.add(work)
            work.add_done_callback(done.put_nowait)
            await room.acquire()

    reading = asyncio.ensure_future(read())
    stop = asyncio.ensure_future(stopping.wait())
    stop.add_done_callback(lambda _: reading.cancel())
    reading.add_done_callback(lambda _: done.put_nowait(None))
    try:
        while working or not reading.done():
            finished = await done.get()
            if finished is not None:
                working.discard(finished)
                room.release()
                yield finished.result()
        if reading.cancelled():
            raise Stopping
        await reading
    finally:
        await end(reading, stop)
