"""Partitions whose records could not be handled yet, while those of others could."""

from collections.abc import Collection
from typing import Final

PAUSE_SECONDS: Final = 5.0
"""After so long their records are handed over again. Each time costs the others a moment."""


class Leftovers:
    """When partitions that were put back are read again. Wall (monotonic) seconds, handed in."""

    def __init__(self) -> None:
        self._due_at: dict[int, float] = {}

    def note(self, partitions: Collection[int], now: float) -> None:
        """These were put back just now."""
        self._due_at |= dict.fromkeys(partitions, now + PAUSE_SECONDS)

    def due(self, now: float) -> set[int]:
        """Those that are to be read again now; each is named once."""
        due = {partition for partition, at in self._due_at.items() if at <= now}
        for partition in due:
            del self._due_at[partition]
        return due
