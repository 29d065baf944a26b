"""The shards' reports on one grid, as they change."""

import numpy as np

from services.coordinator.allotment import Fleet
from services.coordinator.solver import gather
from shared.contracts.messages import DemandCurve

THRESHOLDS = [0.1, 1.0, 10.0]


def report(shard, demand, sequence=1, thresholds=THRESHOLDS):
    return DemandCurve(
        shard=shard,
        reported_at=1000.0 + sequence,
        pages=10,
        thresholds=list(thresholds),
        demand=[demand, demand / 2, demand / 4],
        ripe=[demand, demand / 3, 0.0],
        instance="one",
        sequence=sequence,
        achieved_crawls_per_second=0.0,
        host_limited_share=0.0,
        marginal_value=0.0,
    )


def test_a_report_that_lies_where_an_older_one_lay_is_a_new_one():
    fleet = Fleet(10.0)
    for sequence in range(1, 40, 2):
        fleet.report(report(0, float(sequence), sequence), 1.0, 1000.0)
        fleet.curves(1.0)
        # Two come between two looks: the second may be given the first one's memory.
        fleet.report(report(0, 77.0, sequence + 1), 1.0, 1000.0)
        fleet.report(report(0, 100.0 + sequence, sequence + 2), 1.0, 1000.0)

        assert fleet.curves(1.0).demand[0, 0] == 100.0 + sequence


def test_what_stands_is_what_would_be_gathered_anew():
    fleet = Fleet(10.0)
    for sequence, (shard, thresholds) in enumerate(
        [(0, THRESHOLDS), (2, THRESHOLDS), (1, THRESHOLDS), (0, THRESHOLDS), (2, [1, 10, 100])], 1
    ):
        fleet.report(report(shard, 3.0 * sequence, sequence, thresholds), 1.0, 1000.0)

        found = fleet.curves(1.0)

        anew = gather({number: known.curve for number, known in fleet.shards.items()})
        assert found.shards == anew.shards
        for name in ("grid", "demand", "ripe", "pages"):
            np.testing.assert_array_equal(getattr(found, name), getattr(anew, name))


def test_a_shard_that_is_silent_is_left_out():
    fleet = Fleet(10.0)
    fleet.report(report(0, 1.0), 1.0, 1000.0)
    fleet.report(report(1, 2.0), 9.0, 1000.0)

    assert fleet.curves(9.0).shards == (0, 1)
    assert fleet.curves(12.0).shards == (1,)
