"""Room for what waits for the database, beside what does not."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 1.0


class Room:
    """So many at once. Who finds it full waits while others leave it; once nobody has for a while,
    nobody waits: what comes behind would wait as well."""

    def __init__(
        self,
        most: int,
        patience_seconds: float = PATIENCE_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make it.

        Args:
            most: at once.
            patience_seconds: it is waited for so long after it was full, or the last has left.
            now: wall seconds.
        """
        self._places = asyncio.Semaphore(most)
        self._patience_seconds = patience_seconds
        self._now = now
        self._moved_at = 0.0

    async def enter(self) -> bool:
        """Take a place, after a wait if need be; False: there is none."""
        if not self._places.locked():
            await self._places.acquire()
            self._moved_at = self._now()
            return True
        while (left := self._moved_at + self._patience_seconds - self._now()) > 0.0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._places.acquire()
                return True
        return False

    def leave(self) -> None:
        """Give a place back."""
        self._moved_at = self._now()
        self._places.release()
