"""Operators say something of pages, hosts and the budget while servers are away and shards grow."""

import pytest

from services.verify.simulation.campaign import warm_up
from services.verify.simulation.plan import BESIDE, KINDS, Scale, draw_plan
from services.verify.simulation.run import simulate

AMID = Scale(kinds=("order", "broker-down", "clock"))

LATE = 4
"""A seed in which requests are on their way to a broker that is away for longer than they wait."""


def orders(seed, scale):
    return sum(fault.kind == "order" for fault in draw_plan(seed, scale).faults)


def test_operators_speak_in_a_part_of_the_seeds_and_where_it_is_asked_for_in_each():
    usual = [orders(seed, Scale()) for seed in range(200)]
    assert {0, 2, 6} <= set(usual) <= {0, *range(2, 7)}
    assert 20 < sum(map(bool, usual)) < 60
    assert all(orders(seed, AMID) for seed in range(20))
    others = Scale(kinds=tuple(kind for kind in KINDS if kind != "order"))
    for seed in range(20):
        found = (draw_plan(seed, scale).faults for scale in (Scale(), others))
        with_them, without = ([f for f in faults if f.kind not in BESIDE] for faults in found)
        assert with_them == without


@pytest.mark.slow(3)
def test_every_promise_holds_and_no_request_counts_as_unanswered_that_was_never_sent():
    warm_up()
    for seed in (LATE, LATE + 1):
        assert simulate(draw_plan(seed, AMID)).broken == ()
