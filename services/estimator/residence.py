"""Which pages stay in memory: those that were named last."""

from collections.abc import Collection
from typing import Final

import numpy as np

from services.estimator import metrics
from services.estimator.shard import Shard

_KEPT: Final = 0.75
"""Share of the room that is full afterwards: to let one page go at a time would cost too much."""


def make_room(shards: Collection[Shard], most_pages: int) -> int:
    """Let pages go that were not named for longest, if there are too many; how many went.

    Args:
        shards: of which nothing waits to be committed.
        most_pages: that may be in memory.
    """
    total = sum(len(shard.pages) for shard in shards)
    if total <= most_pages:
        return 0
    leaving = total - max(int(_KEPT * most_pages), 1)
    used = np.concatenate([shard.used for shard in shards])
    goes = np.zeros(total, np.bool_)
    goes[np.argpartition(used, leaving - 1)[:leaving]] = True
    begin = 0
    for shard in shards:
        end = begin + len(shard.pages)
        if goes[begin:end].any():
            shard.keep(np.flatnonzero(~goes[begin:end]))
        begin = end
    metrics.EVICTED.inc(leaving)
    return leaving
