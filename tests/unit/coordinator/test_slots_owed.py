"""Each shard has the slots of its shares, whatever others ask for from second to second."""

import math
from collections import Counter

import numpy as np
import pytest
from coordination_run import Run

SHARDS = 40
RATE = 30.0


def most_owed(run, seconds, *, clock_set_every=None):
    """The most slots that were ever owed to a shard: allotted to it, and not fallen to it."""
    rng, owed, most = np.random.default_rng(4), Counter(), 0.0
    run.set_bandwidth(RATE)
    for second in range(seconds):
        run.reporting = {shard: math.exp(rng.normal(0, 1.2)) for shard in range(SHARDS)}
        if clock_set_every is not None and second % clock_set_every == 1:
            run.origin -= 3600.0
            run.stepped -= 3600.0
        since = run.moment.clock
        run.step()
        # What is said now takes effect later: this second is as it will have been.
        for begin, end, plan in run.core.timeline.held(since, run.moment.clock):
            for shard in plan.shards.tolist():
                owed[shard] += plan.share_of(shard) * (plan.passed(end) - plan.passed(begin))
            owed.subtract(plan.between(begin, end)[1].tolist())
        most = max([most, *owed.values()])
    return most


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("clock_set_every", [None, 5])
def test_no_shard_waits_for_many_slots_where_all_demands_change(clock_set_every):
    assert most_owed(Run(), 120, clock_set_every=clock_set_every) < 3.0
