"""A large batch in parts: each is stored while the next is applied."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from shared.runtime.isolation import TooManyBadMessages

Part = TypeVar("Part")
Applied = TypeVar("Applied")


async def overlapping(
    parts: Sequence[Part],
    apply: Callable[[Part], Awaitable[Applied]],
    store: Callable[[Applied], Awaitable[None]],
    check: Callable[[Sequence[Applied]], None],
) -> None:
    """Apply parts in their order, and store them in it, one at a time.

    At the end nothing is under way.

    Args:
        parts: that have nothing to do with each other.
        apply: applies one.
        store: stores one that was applied.
        check: refuses to store some that were applied, as too many messages of them are bad. They
            wait for the others then: of all of them it may be few.

    Raises:
        TooManyBadMessages: so it is still with the last part.
        Exception: the first that failed.
    """
    waiting: list[Applied] = []
    storing: asyncio.Task[None] | None = None

    async def store_each(applied: Sequence[Applied]) -> None:
        for one in applied:
            await store(one)

    try:
        for part in parts:
            waiting.append(await apply(part))
            if storing is not None:
                await asyncio.wait([storing])
                storing.result()
            try:
                check(waiting)
            except TooManyBadMessages:
                if part is parts[-1]:
                    raise
                continue
            storing = asyncio.ensure_future(store_each(waiting))
            waiting = []
    finally:
        if storing is not None:
            # Whatever it ends with, nobody may go on beside it; what failed first is what is said.
            await asyncio.gather(storing, return_exceptions=True)
    if storing is not None:
        storing.result()
