"""How soon a source is read again."""

import pytest

from services.poller.rhythm import (
    FIRST_SECONDS,
    interval_by_value,
    next_interval,
    pause_of_host,
    wait_after_failure,
)
from shared.policy.polls import PollRecord

LIMITS = {"shortest": 60.0, "longest": 86_400.0}


def test_the_first_interval_is_what_the_source_says_within_limits():
    assert next_interval(0.0, None, found=True, **LIMITS) == FIRST_SECONDS
    assert next_interval(0.0, 600.0, found=True, **LIMITS) == 600.0
    assert next_interval(0.0, 1.0, found=False, **LIMITS) == 60.0
    assert next_interval(0.0, 1e9, found=False, **LIMITS) == 86_400.0


def test_what_is_found_goes_before_what_is_said():
    assert next_interval(600.0, 86_400.0, found=True, **LIMITS) == 300.0
    assert next_interval(600.0, 60.0, found=False, **LIMITS) == 1200.0
    assert next_interval(61.0, None, found=True, **LIMITS) == 60.0
    assert next_interval(80_000.0, None, found=False, **LIMITS) == 86_400.0


@pytest.mark.parametrize(
    ("failures", "asked", "seconds"),
    [
        (1, None, 60.0),
        (2, None, 120.0),
        (4, None, 480.0),
        (1, 500.0, 500.0),
        (4, 100.0, 480.0),
        (1, 86_400.0, 86_400.0),
        (1, 1e9, 86_400.0),
        (10_000, None, 86_400.0),
    ],
)
def test_failures_double_the_wait_and_a_host_that_asks_for_more_gets_it(failures, asked, seconds):
    assert wait_after_failure(failures, asked, **LIMITS) == seconds


@pytest.mark.parametrize(
    ("asked", "longest", "seconds"),
    [
        (7200.0, 3600.0, 7200.0),
        (1e9, 3600.0, 86_400.0),
        (1e9, 200_000.0, 200_000.0),
    ],
)
def test_a_host_gets_a_longer_pause_than_the_longest_interval_and_a_day_at_most(
    asked, longest, seconds
):
    limits = {"shortest": 60.0, "longest": longest}
    assert wait_after_failure(1, asked, **limits) == seconds
    assert pause_of_host(asked, **limits) == seconds


def test_a_source_is_read_when_that_is_worth_its_price_and_no_sooner_than_allowed():
    # 8 a day with half a usual signal: 9 τ²/2 = 4.5 at a day.
    record = PollRecord(worth=8.0, signals=4.0, days=1.0)
    assert interval_by_value(record, 4.5, **LIMITS) == pytest.approx(86_400.0)
    assert interval_by_value(record, 4.5 / 16, **LIMITS) == pytest.approx(21_600.0)
    assert interval_by_value(record, 1e9, **LIMITS) == 86_400.0
    assert interval_by_value(record, 1e-9, **LIMITS) == 60.0


def test_a_source_that_brings_nothing_is_read_as_often_whatever_the_unit_of_importance_is():
    # Half a signal in four days, each worth a poll: τ²/16 is 1 at four days.
    for price in (1e-9, 1.0, 1e9):
        quiet = PollRecord(worth=0.0, signals=0.0, days=4.0)
        seconds = interval_by_value(quiet, price, shortest=60.0, longest=1e9)
        assert seconds == pytest.approx(4.0 * 86_400.0)


def test_without_a_price_or_a_day_of_record_the_rhythm_is_another():
    assert interval_by_value(PollRecord(8.0, 4.0, 1.0), 0.0, **LIMITS) is None
    assert interval_by_value(PollRecord(8.0, 4.0, 0.9), 1.0, **LIMITS) is None
