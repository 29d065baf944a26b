"""What is asked for with slots that were filled: of each pick what its request is to say."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.priority import RETRY
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled

ASKED: Final = np.dtype(
    [
        ("row", np.int64),
        ("host", np.int64),  # its number
        ("requested_us", np.int64),  # the slot: Unix microseconds
        ("time", np.float64),  # of the slot
        ("deadline", np.float64),
        ("value", np.float64),
        ("threshold", np.float64),
        ("tier", np.int64),
    ],
    align=True,
)
"""One page that is asked for."""


@compiled
def host_multiplier(host: Any, multiplier: float) -> float:
    """λ_i as observed: what the pages of a host at its limit are worth above λ₀; else 0."""
    above: float = max(host.typical_value - multiplier, 0.0)
    return above if host.held_back > multiplier else 0.0


@compiled
def ask_for(
    picks: Rows,
    pages: Rows,
    hosts: Rows,
    multiplier: float,
    timeout: float,
    asked: Rows,
    by_tier: NDArray[np.int64],
) -> tuple[int, float]:
    """Gather what requests say, of all picks that have a page, in one go: there are few in each of
    many shards.

    Args:
        picks: of slots (`filling.PICK`).
        pages: rows of the shard.
        hosts: rows of the hosts.
        multiplier: λ₀.
        timeout: clock seconds until a request counts as unanswered.
        asked: one `ASKED` a pick, to be written.
        by_tier: to be added to: how many picks are of each tier.

    Returns:
        how many of `asked` were written, and the least value of those by value; infinite: none is.
    """
    count, least = 0, np.inf
    for place in range(picks.size):
        pick = picks[place]
        if pick.row < 0:
            continue
        one = asked[count]
        count += 1
        one.row, one.host = pick.row, pages[pick.row].host
        one.requested_us = np.int64(pick.time * 1e6 + 0.5)
        one.time, one.deadline = pick.time, pick.time + timeout
        one.value, one.tier = pick.value, pick.tier
        # λ₀ + λ_i; a typical value lags behind, so never above what was picked by value.
        one.threshold = multiplier + host_multiplier(hosts[one.host], multiplier)
        if pick.tier <= RETRY:
            one.threshold = max(min(one.threshold, pick.value), multiplier)
            least = min(least, pick.value)
        by_tier[pick.tier] += 1
    return count, least
