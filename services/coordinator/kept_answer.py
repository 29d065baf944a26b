"""An answer that is dear to make, for however many who ask for it."""

import math
import time
from collections.abc import Callable
from typing import Final

RESTS: Final = 9.0
"""So many times as long as it took to make, an answer is good for whoever asks next ..."""

LONGEST_SECONDS: Final = 1.0
"""... but no longer than this (wall): the process may have stood still while it was made."""


class KeptAnswer:
    """One at a time: at thousands of shards `/state.json` takes hundredths of a second to make, in
    which nothing else is done, nor decided."""

    def __init__(
        self, make: Callable[[], bytes], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep nothing yet.

        Args:
            make: makes the answer.
            now: wall (monotonic) seconds.
        """
        self._make, self._now = make, now
        self._body = b""
        self._good_until = -math.inf

    def body(self) -> bytes:
        """The answer."""
        asked_at = self._now()
        if asked_at >= self._good_until:
            self._body = self._make()
            made_at = self._now()
            self._good_until = made_at + min(RESTS * (made_at - asked_at), LONGEST_SECONDS)
        return self._body
