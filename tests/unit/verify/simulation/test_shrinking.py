"""From many faults to those that it takes."""

from contextlib import nullcontext
from random import Random

import pytest

from services.verify.checks.finding import Finding
from services.verify.simulation.plan import Fault, Scale, SimulationPlan, draw_plan
from services.verify.simulation.run import Result
from services.verify.simulation.shrinking import MOST_RUNS, Shrinker


def plan_of(*kinds):
    plan = draw_plan(1, Scale())
    faults = tuple(Fault(4.0 + i, kind, "p", 4.0) for i, kind in enumerate(kinds))
    return SimulationPlan(1, plan.scale, faults, plan.weather)


class Runner:
    """Breaks a promise when certain faults are there together."""

    def __init__(self, *needed, seconds=0.0):
        self.needed, self.seconds, self.runs = needed, seconds, 0

    def __call__(self, plan, _mutate=nullcontext):
        self.runs += 1
        there = [fault.kind for fault in plan.faults if fault.seconds >= self.seconds]
        broken = all(kind in there for kind in self.needed)
        finding = Finding.of("slots", "each is filled once", ["twice"] if broken else [])
        return Result(plan, [finding], "0")


@pytest.mark.parametrize("needed", [("kill",), ("pause", "clock"), ("kill", "pause", "clock")])
def test_only_what_it_takes_is_left(needed):
    kinds = ["kill", "pause", "term", "deaf", "clock", "marker", "rebalance", "duplicate"]
    for seed in range(10):
        Random(seed).shuffle(kinds)
        run = Runner(*needed)
        best = Shrinker(run(plan_of(*kinds)), nullcontext, run).shrink()
        assert {fault.kind for fault in best.plan.faults} == set(needed)
        assert not best.passed


def test_faults_last_no_longer_than_it_takes():
    run = Runner("pause", seconds=1.5)
    best = Shrinker(run(plan_of("pause", "kill")), nullcontext, run).shrink()
    assert [fault.seconds for fault in best.plan.faults] == [2.0]


def test_another_promise_broken_is_not_the_same_story():
    def run(plan, _mutate):
        kinds = {fault.kind for fault in plan.faults}
        check = "slots" if "kill" in kinds else "memory"
        return Result(plan, [Finding.of(check, "what", ["x"])], "0")

    plan = plan_of("kill", "pause")
    best = Shrinker(run(plan, nullcontext), nullcontext, run).shrink()
    assert [fault.kind for fault in best.plan.faults] == ["kill"]


def test_it_ends_though_nothing_can_be_left_out():
    kinds = ["kill"] * 40
    run = Runner("kill")
    run.__class__ = type("All", (Runner,), {"__call__": needs_all_forty})
    best = Shrinker(run(plan_of(*kinds)), nullcontext, run).shrink()
    assert len(best.plan.faults) == 40
    assert run.runs <= MOST_RUNS + 1


def needs_all_forty(self, plan, _mutate=nullcontext):
    self.runs += 1
    broken = len(plan.faults) == 40 and all(fault.seconds == 4.0 for fault in plan.faults)
    return Result(plan, [Finding.of("slots", "what", ["x"] if broken else [])], "0")
