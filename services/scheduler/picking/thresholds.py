"""The threshold that each pick had to reach: λ₀, and its host's own multiplier above it."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.priority import RETRY
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard


def host_multipliers(hosts: Rows, multiplier: float) -> NDArray[np.float64]:
    """λ_i as observed: what the pages of a host at its limit are worth above λ₀; else 0."""
    above = np.maximum(hosts["typical_value"] - multiplier, 0.0)
    return np.where(hosts["held_back"] > multiplier, above, 0.0)


def thresholds_of(shard: Shard, crawls: Rows, multiplier: float) -> NDArray[np.float64]:
    """λ₀ + λ_i of picks; a typical value lags behind, so never above what was picked by value."""
    numbers, hosts = shard.pages["host"][crawls["row"]], shard.hosts.rows
    if not (hosts["held_back"][numbers] > multiplier).any():
        return np.full(numbers.size, multiplier)  # as most are: no host is above λ₀
    thresholds = multiplier + host_multipliers(hosts[numbers], multiplier)
    reached = np.maximum(np.minimum(thresholds, crawls["value"]), multiplier)
    return np.where(crawls["tier"] <= RETRY, reached, thresholds)
