"""What slots were filled with, for what follows of it."""

from typing import Final, NamedTuple

import numpy as np

from services.scheduler.picking.priority import RETRY
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled

EVERYBODY: Final = 0
"""The lane of picks that is no class; classes are numbered from 1 on."""


class Filled(NamedTuple):
    """What slots were filled with."""

    slots: int
    crawls: int
    """Slots that have a page."""
    by_value: int
    """... none of an upper tier."""
    least: float
    """Priority of the pick that is worth least, or of the best that there was for an empty slot."""
    least_by_value: float
    """... of those that have a page of no upper tier; infinite: none has."""
    unsure: int
    """Slots that were filled, or left empty, in a way that a look at all pages might not."""


@compiled
def look_over(picks: Rows, state: Rows) -> Filled:
    """What slots of everybody's were filled with.

    Args:
        picks: as they were made; those of classes' own slots are left out.
        state: of the board.
    """
    unsure_below = state[0].unsure_below
    certain_from = max(state[0].certain_from, unsure_below)
    slots = crawls = by_value = unsure = 0
    least = least_by_value = np.inf
    for place in range(picks.size):
        pick = picks[place]
        if pick.lane != EVERYBODY:
            continue
        slots += 1
        least = min(least, pick.priority)
        if pick.row >= 0:
            crawls += 1
            if pick.tier <= RETRY:
                by_value += 1
                least_by_value = min(least_by_value, pick.priority)
        if pick.priority < certain_from and (pick.row >= 0 or unsure_below > 0.0):
            unsure += 1
    return Filled(slots, crawls, by_value, least, least_by_value, unsure)
