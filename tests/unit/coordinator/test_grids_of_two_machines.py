"""Schedulers on two kinds of processors: what is the same threshold differs in its last bit."""

import numpy as np
import pytest
from coordination_run import GRID, Run, report

from services.coordinator.solver import gather
from shared.contracts.codec import BadMessage

BITS = np.random.default_rng(7).integers(-3, 4, len(GRID))
"""By how many of the least steps the other machine's numbers differ."""


def as_the_other_machine_has_it(thresholds):
    points = np.array(thresholds)
    return np.where(BITS == 0, points, points * (1.0 + BITS * np.finfo(float).eps)).tolist()


def fleet(*thresholds_of_shards):
    run = Run()
    run.set_bandwidth(2.0)
    for shard, thresholds in enumerate(thresholds_of_shards):
        run.hear(report(shard, scale=1.0 + shard, thresholds=thresholds))
    return run


def test_the_leader_decides_as_if_all_were_of_one_kind():
    """It ended, and so did whoever led next: the logarithms of two thresholds were one number."""
    others = as_the_other_machine_has_it(GRID)
    assert others != GRID
    alike, mixed = fleet(GRID, GRID, GRID).step(), fleet(GRID, others, GRID).step()
    assert mixed.multiplier == pytest.approx(alike.multiplier, rel=1e-9)
    for found, expected in zip(mixed.allotments, alike.allotments, strict=True):
        assert found.share == pytest.approx(expected.share, rel=1e-9)


@pytest.mark.parametrize("others_first", [False, True])
def test_points_of_both_are_one_point_where_grids_overlap(others_first):
    grids = [GRID[:30], as_the_other_machine_has_it(GRID)[3:]]
    grids = grids[::-1] if others_first else grids
    reports = {}
    for shard, grid in enumerate(grids):
        ends = [1.0 / (1.0 + number) for number in range(len(grid))]
        reports[shard] = report(shard, thresholds=grid, demand=ends, ripe=ends)
    curves = gather(reports)
    assert curves.grid == pytest.approx(GRID, rel=1e-12)
    for row, grid in enumerate(grids):
        begin = int(np.searchsorted(GRID, grid[0] * (1 - 1e-9)))
        assert curves.demand[row][begin : begin + len(grid)].tolist() == reports[row].demand
        assert curves.ripe[row][begin : begin + len(grid)].tolist() == reports[row].ripe


def test_a_report_whose_own_thresholds_are_almost_one_is_refused():
    run = Run()
    ends = {"demand": [2.0, 1.0], "ripe": [1.0, 0.0]}
    with pytest.raises(BadMessage, match="nearer to each other"):
        run.hear(report(0, thresholds=[1.0, np.nextafter(1.0, 2.0)], **ends))
