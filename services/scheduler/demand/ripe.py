"""How many pages of a shard are ripe under each threshold, for its report."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.hosts import capacity
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled

UNSEEN: Final = -1.0
"""In place of what a host can take."""


@compiled
def count_ripe(
    priorities: NDArray[np.float64],
    host_numbers: NDArray[np.int32],
    pages_each: NDArray[np.float64],
    hosts_each: NDArray[np.float64],
    hosts: Rows,
    group_rooms: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    now: float,
    horizon: float,
) -> NDArray[np.float64]:
    """Pages of a priority at or above each threshold, of each host, and of each group of hosts,
    no more than it can take within `horizon` seconds from now.

    Without that bound, the many ripe pages of a host that is blocked or slow would draw a budget
    that its shard can only spend on pages worth less than others'.

    Args:
        priorities: (pages,).
        host_numbers: rows in `hosts`; (pages,).
        pages_each: how many pages of its host each of these stands for; (pages,).
        hosts_each: ... and how many hosts its host stands for; (pages,).
        hosts: `HOST` rows.
        group_rooms: crawls that each group of hosts can take in that time; used up.
        thresholds: rising.
        now: clock seconds.
        horizon: clock seconds.

    Returns:
        pages per threshold.
    """
    counts = np.zeros(thresholds.size + 1)
    rooms = np.full(hosts.size, UNSEEN)  # few of a million hosts may have a ripe page
    ripe_rows = np.flatnonzero(priorities >= thresholds[0])
    for index in np.argsort(-priorities[ripe_rows]):
        row = ripe_rows[index]
        host = host_numbers[row]
        group, named = hosts[host].group, hosts[host].named
        if rooms[host] == UNSEEN:
            rooms[host] = capacity(hosts[host], now, now + horizon)
        alike = hosts_each[row]
        rest = min(group_rooms[group], group_rooms[named]) / alike
        taken = min(pages_each[row], rooms[host], rest)
        if taken > 0.0:
            rooms[host] -= taken
            group_rooms[group] -= taken * alike
            group_rooms[named] -= taken * alike
            counts[np.searchsorted(thresholds, priorities[row], side="right")] += taken * alike
    ripe = np.empty(thresholds.size)
    above = 0.0
    for point in range(thresholds.size - 1, -1, -1):
        above += counts[point + 1]
        ripe[point] = above
    return ripe
