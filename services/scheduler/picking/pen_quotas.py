"""What a pen keeps: the best few pages of each queue, and how good those are that it leaves out."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board_rows import UPPER_TIERS
from services.scheduler.picking.priority import HIGHEST_VALUE, queue_of
from shared.policy.compiled import compiled
from shared.policy.kernels.ranks import nth_greatest

_ABOVE: Final = 1.0 + 1e-5
"""Pages of a host that go by value and differ by less are as good as each other."""


@compiled
def least_kept(
    priorities: NDArray[np.float64], quota: int, floor: float, in_turns: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """What a page must be worth to be kept, where each queue keeps so many of its best.

    Returns:
        by queue: the least priority that is kept, how many of just that, and what the others are
        worth at most, 0 where all that are ripe are kept.
    """
    queues = UPPER_TIERS + 1 if in_turns else 1
    leasts, guards = np.full(queues, floor), np.zeros(queues)
    spares = np.zeros(queues, np.int64)
    members = np.empty(priorities.size)
    for queue in range(queues):
        size = ripe = 0
        for priority in priorities:
            if queue_of(priority, in_turns) == queue:
                members[size] = priority
                size += 1
                if priority > 0.0 and priority >= floor:
                    ripe += 1
        if ripe > quota:
            guards[queue] = nth_greatest(members[:size], quota)
            leasts[queue] = guards[queue]
        spares[queue] = quota - _count_above(members[:size], leasts[queue])
    return leasts, spares, guards


@compiled
def most_outside(host: Any) -> float:
    """What pages of a host that are outside its pen are worth at most, but for the global guard."""
    return float(max(host.guard, host.swept_from, host.tier_guards.max()))


@compiled
def raise_guards(host: Any, guards: NDArray[np.float64]) -> None:
    """Pages of a host that are outside its pen are worth no more than this, by queue."""
    host.guard = max(host.guard, just_above(guards[0]))
    for queue in range(1, guards.size):
        host.tier_guards[queue - 1] = max(host.tier_guards[queue - 1], guards[queue])


@compiled
def _count_above(priorities: NDArray[np.float64], least: float) -> int:
    count = 0
    for priority in priorities:
        if priority > least:
            count += 1
    return count


@compiled
def just_above(priority: float) -> float:
    """A guard for pages that are worth no more.

    Priorities of the upper tiers do not change, and are compared as they are: those of pages beyond
    their maximum age differ in the last digits only.
    """
    return priority if priority > HIGHEST_VALUE else priority * _ABOVE
