"""An answer that is dear to make, for however many who ask for it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

RESTS: Final = 9.0
"""So many times as long as it took to make, an answer is good for whoever asks next ..."""

LONGEST_SECONDS: Final = 1.0
"""... but no longer than this (wall): the process may have stood still while it was made."""


class KeptAnswer:
    """One at a time: what answers anybody who reaches a worker's web server must not keep it from
    its work. The state of thousands of shards takes hundredths of a second to make, and so does a
    look through the pages of all."""

    def __init__(
        self, make: Callable[[], Awaitable[bytes]], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep nothing yet.

        Args:
            make: makes the answer.
            now: wall (monotonic) seconds.
        """
        self._make, self._now = make, now
        self._turn = asyncio.Lock()
        self._body = b""
        self._good_until = -math.inf

    async def body(self) -> bytes:
        """The answer; raises what making it does."""
        async with self._turn:
            asked_at = self._now()
            if asked_at >= self._good_until:
                self._body = await self._make()
                made_at = self._now()
                self._good_until = made_at + min(RESTS * (made_at - asked_at), LONGEST_SECONDS)
            return self._body
