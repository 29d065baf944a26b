"""Heaps of urgent pages: one of all, or one of each upper tier where these take turns."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board_rows import UPPER_TIERS
from services.scheduler.picking.heap import pop
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled
from shared.store.reserved import reserved

Number = TypeVar("Number", bound=np.generic)


def column_with_room(column: NDArray[Number], size: int, used: int) -> NDArray[Number]:
    """A column with room for so many; memory is taken when used."""
    if column.size >= size:
        return column
    larger = reserved(size + size // 2, column.dtype, dense=False)
    used = min(used, column.size)
    larger[:used] = column[:used]
    return larger


def heaps_with_room(
    column: NDArray[Number], size: int, state: Any, *, in_turns: bool
) -> NDArray[Number]:
    """A column of urgent pages with room for so many in each heap."""
    if not in_turns:
        return column_with_room(column, size, int(state["urgent"]))
    if column.size >= UPPER_TIERS * size:
        return column
    larger = reserved(UPPER_TIERS * (size + size // 2), column.dtype, dense=False)
    wide, narrow = larger.size // UPPER_TIERS, column.size // UPPER_TIERS
    for tier, entries in enumerate(state["urgent_by_tier"].tolist()):
        larger[tier * wide : tier * wide + entries] = column[tier * narrow :][:entries]
    return larger


def rows_in(column: NDArray[np.int32], state: Any, *, in_turns: bool) -> NDArray[np.int32]:
    """Rows of the urgent pages, and of some that have left."""
    if not in_turns:
        return column[: state["urgent"]]
    size, counts = column.size // UPPER_TIERS, state["urgent_by_tier"].tolist()
    heaps = [column[tier * size :][:count] for tier, count in enumerate(counts)]
    return np.concatenate(heaps)


@compiled
def pop_urgent(keys: NDArray[np.float64], items: NDArray[np.int32], state: Rows, tier: int) -> None:
    """Drop the top of the heap of a tier."""
    size = items.size // UPPER_TIERS
    first, end = tier * size, (tier + 1) * size
    count = state[0].urgent_by_tier[tier]
    state[0].urgent_by_tier[tier] = pop(keys[first:end], items[first:end], count)
    state[0].urgent -= 1
