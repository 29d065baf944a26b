"""What hosts ask for, no more than they and their groups may take."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import NO_GROUP
from shared.policy.compiled import compiled


@compiled
def cut_sums(
    by_host: NDArray[np.float64],
    limits: NDArray[np.float64],
    group_of: NDArray[np.int32],
    named_of: NDArray[np.int32],
    group_limits: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Σ min(Σ min(demand, limit) over hosts, limit of the group) over groups, for each threshold:
    over the groups that outcomes name first, whose hosts have equal parts of what they ask for,
    and of what is left over those of domains."""
    of_groups = np.zeros((group_limits.size, by_host.shape[1]))
    parts = np.ones((group_limits.size, by_host.shape[1]))
    for row in range(limits.size):
        if named_of[row] != NO_GROUP:
            for point in range(by_host.shape[1]):
                of_groups[named_of[row], point] += min(by_host[row, point], limits[row])
    for group in range(group_limits.size):
        for point in range(by_host.shape[1]):
            if of_groups[group, point] > group_limits[group]:
                parts[group, point] = group_limits[group] / of_groups[group, point]
    of_groups[:] = 0.0
    for row in range(limits.size):
        for point in range(by_host.shape[1]):
            asked = min(by_host[row, point], limits[row]) * parts[named_of[row], point]
            of_groups[group_of[row], point] += asked
    total = np.zeros(by_host.shape[1])
    for group in range(group_limits.size):
        for point in range(total.size):
            total[point] += min(of_groups[group, point], group_limits[group])
    return total
