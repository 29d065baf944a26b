"""Whose turn a slot is, where parts of the slots are kept for reasons to crawl. Pure.

Start-time fair queueing (Goyal, Vin and Cheng 1996): each sharer's next turn has a tag in virtual
time, which moves on by one over its share; the least tag goes first, and virtual time is the tag of
the turn that was last. Who has nothing to crawl is passed over, so no slot is lost; and when it has
again, its turn begins now: what it did not use before is gone. Between two sharers that have pages
all the time, turns by share never differ by more than 1/a + 1/b.

Sharers are the queues (`priority.queue_of`), and `REST`: what is kept for nobody goes to the most
urgent of all.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board_rows import UPPER_TIERS
from shared.policy.compiled import compiled

REST: Final = UPPER_TIERS + 1
"""The sharer of what is kept for nobody."""

NOBODY_WAITS: Final = -1


@compiled
def next_turn(
    shares: NDArray[np.float64], tags: NDArray[np.float64], virtual_time: float, idle: int
) -> int:
    """The sharer whose turn is next; `NOBODY_WAITS` where all that have a share are idle.

    Args:
        shares: of the slots, by sharer; 0: has no turns.
        tags: of the next turn of each.
        virtual_time: see above.
        idle: bits of those that have nothing to crawl.
    """
    best = NOBODY_WAITS
    for sharer in range(REST + 1):
        if shares[sharer] <= 0.0 or (idle >> sharer) & 1:
            continue
        if best == NOBODY_WAITS or max(tags[sharer], virtual_time) < max(tags[best], virtual_time):
            best = sharer
    return best


@compiled
def take_turn(
    shares: NDArray[np.float64], tags: NDArray[np.float64], virtual_time: float, sharer: int
) -> float:
    """A sharer takes its turn; the virtual time."""
    start = max(tags[sharer], virtual_time)
    tags[sharer] = start + 1.0 / shares[sharer]
    return float(start)
