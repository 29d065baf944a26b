"""A report of a shard with a million hosts: the same as ever, a little at a time."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shard import DAY, World, rules

from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import Demand, Sums, demand_of
from services.scheduler.flow import reporting
from services.scheduler.flow.reporting import Reporting
from services.scheduler.state.changes import Changes
from services.scheduler.state.groups import CrawlRates
from services.scheduler.state.rows import NEVER
from shared.rules.host_rules import HostRules

NOW = 1.7e9
HORIZON = 10.0


@pytest.fixture
def shard():
    world = World(rules())
    for number in range(20):
        world.add_page(f"h{number % 4}", number, NOW - DAY, last_crawled_at=NOW - DAY)
    world.shard.filled_until = NOW
    return world.shard


HOSTS = st.lists(
    st.tuples(
        st.sampled_from([-1, 0]),
        st.sampled_from([0.0, 1.0, 5.0, 1e9]),
        st.sampled_from([0.0, 2.0, math.inf]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(HOSTS, st.lists(st.sampled_from([0.0, 3.5, 6.5, math.inf]), min_size=4, max_size=4))
def test_a_limit_that_binds_is_missed_wherever_its_hosts_are_not_summed_on_their_own(hosts, limits):
    slots, largest, own, group_of, named_of = map(np.array, zip(*hosts, strict=True))
    named_of[named_of == group_of] = 0
    groups = np.array([math.inf, *limits[1:]])
    of = group_of.astype(np.int32), named_of.astype(np.int32)
    rates = CrawlRates(own / DAY, *of, groups / DAY)
    sums = Sums(np.ones(1), slots.astype(np.int32), largest, np.zeros((1, 1)), np.zeros(1))

    asked: Counter[int] = Counter()
    for most, *numbers in zip(largest, *of, strict=True):
        asked += {number: most for number in numbers if number}
    held = [
        any(number and asked[number] > groups[number] for number in numbers)
        for numbers in zip(*of, strict=True)
    ]
    assert rates.is_held(largest / DAY).tolist() == held
    assert Demand(sums, np.zeros(1, np.int32), 1.0, Changes()).misses(rates) == any(
        slot < 0 < most and (most > limit or is_held)
        for slot, most, limit, is_held in zip(slots, largest, own, held, strict=True)
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 2), st.sampled_from([NEVER, -5.0, 1.0, 4.0, 9.0, math.inf])),
            st.floats(0.0, 3.0),
        ),
        max_size=30,
    )
)
def test_the_end_of_a_pause_is_told_once_whatever_becomes_of_pauses_before(steps):
    hosts = World(rules()).shard.hosts
    numbers = [hosts.intern(f"h{number}.example") for number in range(3)]
    until = dict.fromkeys(numbers, NEVER)
    reported_at = now = NOW
    for step in steps:
        if isinstance(step, tuple):
            host, pause = numbers[step[0]], NOW + step[1] if step[1] > NEVER else NEVER
            until[host] = pause
            hosts.load_rules(host, HostRules(asked_until=pause))
            continue
        now += step
        told = hosts.ended_pauses(now)
        assert {host: end for host, end in told.items() if end > reported_at} == {
            host: end for host, end in until.items() if reported_at < end <= now
        }
        reported_at = now


def test_what_is_ripe_is_looked_for_in_turns_of_its_own(shard, monkeypatch):
    monkeypatch.setattr(reporting, "_AT_ONCE_SECONDS", 0.0)
    made = Reporting(
        SimpleNamespace(report_seconds=1.0, instance="me"),
        SimpleNamespace(now=lambda: NOW, span=lambda span: span),
        None,
        None,
        SimpleNamespace(shards={0: shard}),
        SimpleNamespace(at=lambda _: None),
    )
    shard.is_caught_up = True
    left = made._begin_reports()
    made._reporters[shard].set_demand(demand_of(shard, 0.1))
    for _ in range(2):  # which pages, and how many of them count
        assert made._reports(left) == []
        assert left == [shard]
    [(key, _)] = made._reports(left)
    assert key == b"0"
    assert left == []
    # One that has gone, and one whose demand is not known, are passed over.
    del made._reporters[shard]
    assert made._reports([shard]) == []


def test_what_is_ripe_is_counted_anew_where_the_demand_has_another_grid_meanwhile(shard):
    reporter = DemandReporter(shard, "me", HORIZON)
    reporter.set_demand(demand_of(shard, 1e-3))
    for _ in range(2):
        assert not reporter.is_prepared
        reporter.prepare(NOW)
    assert reporter.is_prepared
    other = demand_of(shard, 1e-9)
    reporter.set_demand(other)
    report = reporter.report(NOW, 1e-9)
    alone = DemandReporter(shard, "me", HORIZON)
    alone.set_demand(other)
    assert report.thresholds == other.thresholds.tolist()
    assert report.ripe == alone.report(NOW, 1e-9).ripe
    assert not reporter.is_prepared
