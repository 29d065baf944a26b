"""The rate limit of sources: exact over any time, bounded in memory."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingester import sources
from services.ingester.sources import (
    BACKLOG_KEPT_SECONDS,
    BURST_SECONDS,
    MOST_EARNED,
    REPORT_SECONDS,
    SourceLimiter,
    Verdict,
)


def passed(limiter, source, times):
    return sum(limiter.take(source, t) is Verdict.PASS for t in times)


def test_a_burst_passes_and_then_the_rate():
    limiter = SourceLimiter(per_second=5.0)
    assert passed(limiter, "a", [100.0] * 1000) == 5 * BURST_SECONDS
    assert passed(limiter, "a", [100.0 + i / 100 for i in range(1, 1001)]) == 50


def test_sources_do_not_share_their_limit():
    limiter = SourceLimiter(per_second=1.0)
    assert passed(limiter, "a", [0.0] * 50) == passed(limiter, "b", [0.0] * 50) == 10


@settings(max_examples=100, deadline=None)
@given(times=st.lists(st.floats(0, 1000), max_size=200), rate=st.floats(0.01, 10))
def test_no_order_of_arrival_gets_more_than_the_rate_and_a_burst(times, rate):
    limiter = SourceLimiter(rate)
    most = max(rate * BURST_SECONDS, 1.0) + rate * 1000
    assert passed(limiter, "a", times) <= most + 1e-6


def test_the_first_signal_over_the_limit_is_reported_then_one_in_ten_seconds():
    limiter = SourceLimiter(per_second=0.1)
    verdicts = [limiter.take("a", t / 10) for t in range(400)]
    reports = [i / 10 for i, v in enumerate(verdicts) if v is Verdict.REPORT_SOURCE]
    assert reports[0] == 0.1
    gaps = [b - a for a, b in itertools.pairwise(reports)]
    assert all(REPORT_SECONDS <= gap < REPORT_SECONDS + 0.3 for gap in gaps)


def test_made_up_names_share_one_limit_when_there_are_too_many():
    limiter = SourceLimiter(per_second=1.0, max_sources=100)
    names = [f"made-up-{i}" for i in range(10_000)]
    assert sum(limiter.take(name, 5.0) is Verdict.PASS for name in names) == 110
    assert len(limiter) == 100


def test_idle_sources_make_room_and_lose_nothing_by_it():
    limiter = SourceLimiter(per_second=1.0, max_sources=3)
    for name in "abc":
        limiter.take(name, 0.0)
    passed(limiter, "c", [11.9] * 10)
    assert limiter.take("d", 12.0) is Verdict.PASS
    assert len(limiter) == 2
    assert passed(limiter, "a", [12.0] * 50) == 10
    assert passed(limiter, "c", [12.0] * 50) == 0


def test_made_up_names_gain_nothing_and_cost_named_sources_nothing():
    limiter = SourceLimiter(per_second=1.0, named=["cms"], others_per_second=3.0)
    verdicts = [limiter.take(f"made-up-{i}", 5.0 + i / 1000) for i in range(10_000)]
    assert verdicts.count(Verdict.PASS) == 30 + 3 * 10 - 1
    assert verdicts.count(Verdict.REPORT_OTHERS) == 1
    assert passed(limiter, "cms", [15.0] * 50) == 10


def test_a_named_source_over_its_limit_is_its_own_affair():
    limiter = SourceLimiter(per_second=1.0, named=["cms"], others_per_second=1.0)
    verdicts = [limiter.take("cms", 5.0) for _ in range(1000)]
    assert verdicts.count(Verdict.PASS) == 10
    assert verdicts.count(Verdict.REPORT_SOURCE) == 1
    assert limiter.take("somebody", 5.0) is Verdict.PASS


def test_each_signal_of_a_named_source_earns_the_others_a_part_of_one():
    limiter = SourceLimiter(per_second=1e6, named=["cms"], others_share=0.5)
    assert passed(limiter, "x", [1.0] * 1000) == MOST_EARNED
    assert passed(limiter, "cms", [2.0] * 60) == 60
    assert passed(limiter, "y", [3.0] * 1000) == 30


def test_where_nobody_is_named_the_share_does_not_count():
    limiter = SourceLimiter(per_second=1e6, others_share=0.0)
    assert passed(limiter, "x", [1.0] * 1000) == 1000


OUTAGE = 1800.0
PARTITIONS = 16


def read_late(limiter, per_second, name=lambda _: "a", at_once=5000):
    """The signals of half an hour, dealt over partitions and read after it as they are: of each
    partition as many at once as its buffer holds. How many there are, and how many pass."""
    times = [number / per_second for number in range(int(OUTAGE * per_second))]
    parts = [times[number::PARTITIONS] for number in range(PARTITIONS)]
    count = 0
    for begin in range(0, len(parts[0]), at_once):
        for number, part in enumerate(parts):
            for arrived_at in part[begin : begin + at_once]:
                verdict = limiter.take(name(number), arrived_at, OUTAGE + 60.0)
                count += verdict is Verdict.PASS
    return len(times), count


def test_of_a_backlog_a_slow_source_gets_no_more_than_its_rate():
    limiter = SourceLimiter(0.01)
    verdicts = [limiter.take("a", float(at), 1e6) for at in range(10_000)]
    assert verdicts.count(Verdict.PASS) == 100


@pytest.mark.parametrize("at_once", [10, 5000])
def test_a_backlog_is_not_held_against_who_sent_it(at_once):
    there, count = read_late(SourceLimiter(20.0), 19.0, at_once=at_once)
    assert count == there


def test_nor_against_those_that_nobody_has_named():
    """What those who are named have earned for them does not lapse before it is read that they
    sent something themselves."""
    limiter = SourceLimiter(20.0, named=["cms"], others_per_second=20.0, others_share=0.1)
    there, count = read_late(
        limiter, 19.0, lambda number: "cms" if number < PARTITIONS - 1 else "somebody"
    )
    assert count == there


@pytest.mark.parametrize("others_per_second", [math.inf, 20.0])
def test_who_sent_too_much_meanwhile_gets_what_they_may_send(others_per_second):
    limiter = SourceLimiter(20.0, others_per_second=others_per_second)
    there, count = read_late(limiter, 100.0)
    assert there == 100 * OUTAGE
    assert count == 20 * OUTAGE


@settings(max_examples=100, deadline=None)
@given(
    times=st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 100)), max_size=200),
    rate=st.floats(0.01, 10),
)
def test_late_or_not_none_gets_more_than_twice_the_rate_and_two_bursts(times, rate):
    limiter = SourceLimiter(rate)
    verdicts = [limiter.take("a", at, at + late) for at, late in times]
    most = max(rate * BURST_SECONDS, 1.0)
    assert verdicts.count(Verdict.PASS) <= 2 * (most + rate * 1000) + 1e-6


def test_made_up_names_of_a_backlog_take_no_more_memory_than_they_may(monkeypatch):
    monkeypatch.setattr(sources, "MOST_COUNTED", 100)
    limiter = SourceLimiter(1.0, max_sources=10)
    verdicts = [limiter.take(f"made-up-{number}", 5.0, 100.0) for number in range(10_000)]
    assert len(limiter._backlog._passed) <= 101
    assert 100 <= verdicts.count(Verdict.PASS) <= 110


def test_a_backlog_that_is_over_is_forgotten():
    limiter = SourceLimiter(1.0)
    assert limiter.take("a", 5.0, 100.0) is Verdict.PASS
    limiter.take("a", 100.0 + BACKLOG_KEPT_SECONDS / 2)
    assert limiter._backlog._passed
    limiter.take("a", 101.0 + BACKLOG_KEPT_SECONDS)
    assert not limiter._backlog._passed


def test_of_a_backlog_over_the_limit_somebody_hears_once_in_ten_seconds_of_reading():
    limiter = SourceLimiter(1.0)
    verdicts = [limiter.take("a", number / 100, 1000.0) for number in range(50_000)]
    assert verdicts.count(Verdict.REPORT_SOURCE) == 1
