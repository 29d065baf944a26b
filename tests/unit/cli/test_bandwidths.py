"""Bandwidths as people write them, and the history as they read it."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from services.cli.bandwidths import (
    BadBandwidth,
    history_rows,
    read_rate,
    read_schedule,
    time_of_day,
    timed,
)
from services.cli.commands.bandwidth import _answer
from services.cli.main import main
from shared.contracts.codec import decode, encode
from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", 100.0), ("100", 100.0), ("8640000/day", 100.0), ("0", 0.0)]
)
def test_rates(text, rate):
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "1/week", "-1", "nan", "2e6/s", "1/s/s"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(BadBandwidth):
        read_rate(text)


def test_a_schedule_is_sorted_by_the_time_of_the_day():
    said = read_schedule("22:00=3/s 00:00=2/s 6:00=864000/day 23:59:30=0")
    assert said == [(0, 2.0), (21_600, 10.0), (79_200, 3.0), (86_370, 0.0)]
    assert [time_of_day(second) for second, _ in said] == ["00:00", "06:00", "22:00", "23:59:30"]


def test_a_schedule_may_stand_in_a_file_with_remarks(tmp_path):
    file = tmp_path / "nights.txt"
    file.write_text("# when the web is ours\n00:00=50/s\n\n06:00=10/s  # people wake up\n")
    assert read_schedule(str(file)) == [(0, 50.0), (21_600, 10.0)]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("24:00=1/s", "no time of the day"),
        ("6=1/s", "not an entry"),
        ("06:00=much", "not a rate"),
        ("06:00=1 6:00=2", "twice"),
        ("no-such-file", "nor a file"),
        (
            " ".join(f"{k // 3600:02}:{k // 60 % 60:02}:{k % 60:02}=1" for k in range(1441)),
            "1440 at",
        ),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said(given, reason):
    with pytest.raises(BadBandwidth, match=reason):
        read_schedule(given)


def test_a_schedule_of_all_minutes_can_be_read_by_coordinators():
    minutes = (f"{k // 60:02}:{k % 60:02}={1e5 / (k + 7)}/day" for k in range(1440))
    steps = [ScheduledRate(second, rate) for second, rate in read_schedule(" ".join(minutes))]
    message = Bandwidth(1.0, 1.7e9, 60.0, None, steps, "Europe/Berlin")
    assert decode(Bandwidth, encode(message)) == message


def test_the_answer_has_ramps_and_schedules_where_there_are_some():
    assert _answer(None, 0.0)["crawls_per_second"] is None
    assert _answer(Bandwidth(2.0, set_at=5.0), 10.0) == {
        "crawls_per_second": 2.0,
        "crawls_per_day": 172_800.0,
        "set_at": 5.0,
    }
    ramp = _answer(Bandwidth(2.0, set_at=5.0, ramp_seconds=10.0, ramp_from=0.0), 10.0)
    assert (ramp["crawls_per_second"], ramp["ramp_to"], ramp["ramp_seconds_left"]) == (1.0, 2.0, 5)
    day = [ScheduledRate(0, 1.0), ScheduledRate(3600, 2.0)]
    planned = _answer(Bandwidth(1.0, set_at=5.0, schedule=day), 10.0)
    assert planned["schedule"] == {"00:00": 1.0, "01:00": 2.0}
    assert (planned["timezone"], planned["next_change_at"]) == ("UTC", 3600.0)


def test_the_history_is_read_from_the_oldest_to_the_newest():
    row = {
        "version": 2,
        "effective_at": 0.0,
        "leader": "one",
        "epoch": 3,
        "cause": "bandwidth",
        "crawls_per_second": 2.0,
        "ramp_to": 4.0,
        "multiplier": 0.5,
        "achieved_crawls_per_second": 1.9,
        "live_shards": 4,
        "why": "an operator changed the bandwidth",
    }
    first, second = history_rows([row, row | {"version": 1, "ramp_to": None, "leader": ""}])
    assert (first["version"], first["crawls_per_second"], first["leader"]) == (1, "2", "- (3)")
    assert (second["version"], second["crawls_per_second"]) == (2, "2→4")
    assert second["at"] == "1970-01-01 00:00:00Z"
    assert second["why"] == row["why"]


@pytest.mark.parametrize("refused", [encode(Bandwidth(3.0, timezone="Mars/Olympus")), b"{", None])
def test_the_budget_that_holds_is_shown_where_a_later_one_was_refused(monkeypatch, refused):
    if refused is not None:
        refused = refused.replace(
            b'"schedule":[]', b'"schedule":[{"second":0,"crawls_per_second":3}]'
        )
    sent = [
        SimpleNamespace(value=encode(Bandwidth(7.0, set_at=1.7e9))),
        SimpleNamespace(value=refused),
    ]

    async def last_records(*_):
        return sent

    monkeypatch.setattr("services.cli.kafka.last_records", last_records)
    result = CliRunner().invoke(main, ["bandwidth", "get", "--json"], catch_exceptions=False)
    assert json.loads(result.output)["crawls_per_second"] == 7.0


def test_a_time_that_no_calendar_has_is_told_in_words():
    told = timed({"set_at": 1.7e9, "blocked_until": 1e15, "rate": 5.0})
    assert told == {
        "set_at": "2023-11-14 22:13:20Z",
        "blocked_until": "after the year 9999",
        "rate": 5.0,
    }
