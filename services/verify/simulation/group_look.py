"""The rules of groups of hosts once more, for the look at every page."""

import math
from typing import Any, Final

import numpy as np

from shared.pacing.slots import slot_positions

_ROUNDING: Final = 1e-6
"""Seconds by which a slot may come, or be over, before or after its time."""


class GroupLook:
    """A group of hosts as a shard has it before slots are filled."""

    def __init__(self, row: Any) -> None:
        self._row = row.copy()

    def open_at(self, at: float) -> tuple[bool, bool]:
        """Whether a host of it may be crawled at a time: for certain, and maybe."""
        found = [self._slot_at(at + moved) is not None for moved in (-_ROUNDING, 0, _ROUNDING)]
        return all(found), any(found)

    def crawl(self, at: float) -> None:
        """A host of it is crawled."""
        slots = [self._slot_at(at + moved) for moved in (0, _ROUNDING, -_ROUNDING)]
        used = next((slot for slot in slots if slot is not None), self._row["used"])
        self._row["used"] = max(int(self._row["used"]), int(used))

    def _slot_at(self, at: float) -> int | None:
        """The last of the shard's slots that has come and is kept still, if it is not used."""
        row = self._row
        if row["rate"] <= 0.0 or row["high"] <= row["low"]:
            return None
        newest, oldest = (
            math.floor(row["first_slot"] + (time - row["since"]) * row["rate"])
            for time in (at, at - row["kept"])
        )
        numbers = np.arange(max(oldest, int(row["used"])) + 1, newest + 1)
        places = slot_positions(numbers)
        ours = numbers[(row["low"] <= places) & (places < row["high"])]
        return int(ours[-1]) if ours.size else None
