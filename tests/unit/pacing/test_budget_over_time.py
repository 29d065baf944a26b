"""The rate that a bandwidth message sets, at every moment: constant, ramps, days, clock changes."""

import datetime as dt
import itertools
import math
from zoneinfo import ZoneInfo

import pytest

import shared.pacing.budget as pacing_budget
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth
from shared.pacing.budget import Budget, Stretch

BERLIN = ZoneInfo("Europe/Berlin")
DAY = [ScheduledRate(0, 2.0), ScheduledRate(6 * 3600, 10.0), ScheduledRate(22 * 3600, 3.0)]


def utc(*when):
    return dt.datetime(*when, tzinfo=dt.UTC).timestamp()


def berlin(*when):
    return dt.datetime(*when, tzinfo=BERLIN).timestamp()


def budget(**fields):
    return Budget.from_message(Bandwidth(**({"crawls_per_second": 4.0} | fields)))


def test_a_constant_holds_for_ever():
    assert budget().at(0.0) == budget().at(4e9) == Stretch(4.0)
    assert budget().next_change(5.0) == math.inf


def test_a_ramp_goes_evenly_from_where_it_was():
    made = budget(set_at=100.0, ramp_seconds=20.0, ramp_from=8.0)
    assert made.at(100.0) == Stretch(8.0, 4.0, 20.0)
    assert made.at(105.0) == Stretch(7.0, 4.0, 15.0)
    assert made.at(120.0) == made.at(1e9) == Stretch(4.0)


def test_what_is_set_by_a_clock_that_is_ahead_has_a_rate_meanwhile():
    # Of a ramp the rate before it, which the ramp then begins at; without one there is no other.
    made = budget(set_at=100.0, ramp_seconds=20.0, ramp_from=8.0)
    assert made.at(0.0) == made.at(99.0) == Stretch(8.0)
    assert made.next_change(99.0) == 100.0
    assert made.next_change(100.0) == math.inf
    made = budget(set_at=100.0, ramp_from=8.0)
    assert made.at(0.0) == made.at(100.0) == Stretch(4.0)
    assert made.next_change(0.0) == math.inf


def test_a_day_has_its_hours():
    made = budget(schedule=DAY)
    for hour, rate in ((0, 2.0), (5, 2.0), (6, 10.0), (21, 10.0), (22, 3.0), (23, 3.0)):
        assert made.at(utc(2026, 3, 4, hour, 0)) == Stretch(rate)
    assert made.next_change(utc(2026, 3, 4, 5, 0)) == utc(2026, 3, 4, 6)
    assert made.next_change(utc(2026, 3, 4, 6, 0)) == utc(2026, 3, 4, 22)
    assert made.next_change(utc(2026, 3, 4, 23, 0)) == utc(2026, 3, 5)


def test_before_the_first_hour_the_last_one_of_the_day_before_holds():
    made = budget(schedule=DAY[1:])
    assert made.at(utc(2026, 3, 4, 1)) == Stretch(3.0)


def test_every_change_of_a_day_may_be_a_ramp():
    made = budget(schedule=DAY, ramp_seconds=600.0)
    assert made.at(utc(2026, 3, 4, 6)) == Stretch(2.0, 10.0, 600.0)
    assert made.at(utc(2026, 3, 4, 6, 5)) == Stretch(6.0, 10.0, 300.0)
    assert made.at(utc(2026, 3, 4, 6, 10)) == Stretch(10.0)
    assert made.at(utc(2026, 3, 4, 0, 5)) == Stretch(2.5, 2.0, 300.0)


def test_days_are_those_of_the_time_zone_summer_and_winter():
    made = budget(schedule=DAY, timezone="Europe/Berlin")
    assert made.next_change(berlin(2026, 1, 5, 1)) == berlin(2026, 1, 5, 6) == utc(2026, 1, 5, 5)
    assert made.next_change(berlin(2026, 7, 5, 1)) == berlin(2026, 7, 5, 6) == utc(2026, 7, 5, 4)
    # 2026-03-29, 2:00: the clocks go forward; the night has five hours.
    assert made.next_change(berlin(2026, 3, 29, 0)) - berlin(2026, 3, 29, 0) == 5 * 3600


def test_an_hour_that_is_left_out_comes_when_the_clocks_have_moved():
    left_out = [ScheduledRate(0, 1.0), ScheduledRate(9000, 5.0)]
    made = budget(schedule=left_out, timezone="Europe/Berlin")
    assert made.at(berlin(2026, 3, 29, 1, 59)) == Stretch(1.0)
    assert made.at(berlin(2026, 3, 29, 3, 31)) == Stretch(5.0)


@pytest.mark.parametrize("later", [50.0, 0.0])
def test_steps_keep_their_order_where_one_falls_into_the_hour_that_is_left_out(later):
    """Half past two comes at half past three, when the step of three o'clock has long been due."""
    steps = [ScheduledRate(0, 1.0), ScheduledRate(9000, 5.0), ScheduledRate(10800, later)]
    made = budget(schedule=steps, timezone="Europe/Berlin")
    assert made.at(berlin(2026, 3, 29, 1, 59)) == Stretch(1.0)
    assert made.at(berlin(2026, 3, 29, 3, 29)) == Stretch(1.0)
    assert made.at(berlin(2026, 3, 29, 3, 31)) == Stretch(later)
    assert made.at(berlin(2026, 3, 29, 23, 59)) == Stretch(later)
    assert made.at(berlin(2026, 3, 30, 2, 31)) == Stretch(5.0)


@pytest.mark.parametrize("time", [0.0, 1e5, 1e11])
def test_any_time_that_a_message_may_have_has_a_rate(time):
    made = budget(schedule=DAY, timezone="Pacific/Kiritimati")
    assert made.at(time).rate in {2.0, 3.0, 10.0}
    assert made.next_change(time) > time


def test_what_cannot_hold_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="no time zone 'Mars/Base'"):
        budget(schedule=DAY, timezone="Mars/Base")
    with pytest.raises(ValueError, match="before the schedule's next change"):
        budget(schedule=DAY, ramp_seconds=7200.0 + 1)
    for wrong in (
        b'{"crawls_per_second": 1, "ramp_seconds": 5}',
        b'{"crawls_per_second": 1, "schedule": [{"second": 86400, "crawls_per_second": 1}]}',
        b'{"crawls_per_second": 1, "schedule": [{"second": 9, "crawls_per_second": 1},'
        b' {"second": 8, "crawls_per_second": 1}]}',
    ):
        with pytest.raises(BadMessage):
            decode(Bandwidth, wrong)


def test_messages_of_before_are_read_as_they_were():
    old = decode(Bandwidth, b'{"crawls_per_second": 7.5}')
    assert Budget.from_message(old).at(1.0) == Stretch(7.5)
    new = Bandwidth(7.5, schedule=DAY, timezone="Asia/Tokyo")
    assert decode(Bandwidth, encode(new)) == new


@pytest.mark.parametrize(
    "schedule",
    [
        # The hour that is left out makes the ramp of half past one too long for the time it has.
        [ScheduledRate(5400, 100.0), ScheduledRate(12_600, 1.0)],
        # The pause of half past two and its end fall on one moment.
        [ScheduledRate(0, 100.0), ScheduledRate(9_000, 0.0), ScheduledRate(16_200, 100.0)],
    ],
)
def test_no_rate_jumps_in_a_ramp_in_the_night_in_which_clocks_go_forward(schedule):
    made = budget(schedule=schedule, ramp_seconds=7200.0, timezone="Europe/Berlin")
    rates = [made.at(berlin(2026, 3, 29) + seconds).rate for seconds in range(0, 6 * 3600, 10)]
    # 99 crawls a second within two hours are 0.14 in ten seconds.
    assert max(abs(b - a) for a, b in itertools.pairwise(rates)) < 0.2
    assert rates[-1] == schedule[-1].crawls_per_second


def test_a_schedule_is_laid_out_once_a_day_however_often_it_is_asked(monkeypatch):
    laid = []
    found = pacing_budget._moment
    monkeypatch.setattr(pacing_budget, "_moment", lambda *of: laid.append(of) or found(*of))
    made = budget(schedule=[ScheduledRate(60 * k, float(k % 7)) for k in range(1440)])
    noon = utc(2026, 3, 4, 12)
    for second in range(1000):
        assert made.at(noon + second).rate == (720 + second // 60) % 7
        assert made.next_change(noon + second) == noon + 60 * (second // 60 + 1)
    assert len(laid) == 5 * 1440
