"""A look at every page: where the selection begins, and what it is measured against."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.hosts import capacity
from services.scheduler.pages import Rows
from services.scheduler.priority import HIGHEST_VALUE, priority_of
from shared.policy.compiled import compiled

_HOST_SPARE: Final = 4


@compiled
def evaluate(
    pages: Rows,
    attempts: Rows,
    rows: NDArray[np.int64],
    now: float,
    uniform: bool,
    priorities: NDArray[np.float64],
) -> None:
    """Priority of pages at one time."""
    for place in range(rows.size):
        priorities[place] = priority_of(pages[rows[place]], attempts, now, uniform)


@compiled
def value_of_rank(
    pages: Rows, hosts: Rows, priorities: NDArray[np.float64], rank: int, now: float, reach: float
) -> float:
    """The crawl value that about `rank` pages reach, of each host no more than it can take.

    Args:
        pages: rows of the shard.
        hosts: rows of the hosts.
        priorities: of the pages now.
        rank: how many pages.
        now: clock seconds.
        reach: seconds in which hosts are to take them.

    Returns:
        0 where there are not so many.
    """
    wanted = rank
    while wanted < priorities.size:
        bound = np.partition(priorities, priorities.size - wanted)[priorities.size - wanted]
        if not bound > 0.0:
            return 0.0
        room = np.empty(hosts.size)
        for host in range(hosts.size):
            room[host] = capacity(hosts[host], now, now + reach) + _HOST_SPARE
        crawls = 0
        for row in range(priorities.size):
            if priorities[row] >= bound and room[pages[row].host] >= 1.0:
                room[pages[row].host] -= 1.0
                crawls += 1
        if crawls >= rank:
            return bound if bound <= HIGHEST_VALUE else HIGHEST_VALUE
        wanted *= 4
    return 0.0
