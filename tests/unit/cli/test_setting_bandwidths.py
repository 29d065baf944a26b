"""`freshet bandwidth set|schedule|history`: what is sent, and what of it is noted and shown."""

import json
import time

import pytest
from click.testing import CliRunner

from services.cli import audit, kafka
from services.cli.main import main
from shared.contracts.daily import ScheduledRate
from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.store import multipliers


@pytest.fixture
def run(monkeypatch):
    """Runs a command over the budget that stands: its answer, or why it was refused, the messages,
    and the notes."""

    def invoke(*arguments, stands=None):
        sent, noted = [], []

        async def publish(_settings, topic, message):
            assert topic == BANDWIDTH
            sent.append(message)

        async def last(*_):
            return stands

        monkeypatch.setattr(kafka, "publish_global", publish)
        monkeypatch.setattr(kafka, "last_message", last)
        monkeypatch.setattr(audit, "note", lambda _, *noting: noted.append(noting))
        done = CliRunner().invoke(main, ["bandwidth", *arguments, "--json"])
        return json.loads(done.stdout) if done.exit_code == 0 else done.stderr, sent, noted

    return invoke


def test_a_budget_holds_at_once_and_who_set_it_is_noted(run):
    said, [message], [(about, host, change)] = run("set", "864000/day", stands=Bandwidth(3.0))
    assert message == Bandwidth(10.0, set_at=message.set_at)
    assert abs(message.set_at - time.time()) < 600
    assert (about, host, change["crawls_per_second"]) == ("budget", None, 10.0)
    assert said["crawls_per_second"] == 10.0


def test_a_ramp_begins_at_what_holds_by_then(run):
    half_way = Bandwidth(10.0, time.time() - 50_000, ramp_seconds=100_000.0, ramp_from=4.0)
    said, [message], _ = run("set", "1/s", "--ramp", "600", stands=half_way)
    assert message.ramp_from == pytest.approx(7.0, abs=0.05)
    assert (message.crawls_per_second, message.ramp_seconds) == (1.0, 600.0)
    assert said["crawls_per_second"] == pytest.approx(7.0, abs=0.1)
    assert said["ramp_to"] == 1.0
    _, [first], _ = run("set", "1/s", "--ramp", "600")
    assert first.ramp_from == 0.0, "nothing was crawled before"


SLOW_NIGHTS = Bandwidth(
    1.0, schedule=[ScheduledRate(0, 1.0), ScheduledRate(3600, 30.0), ScheduledRate(7200, 1.0)]
)
FALLING = Bandwidth(1.0, time.time() - 1.0, ramp_seconds=80_000.0, ramp_from=30.0)


@pytest.mark.parametrize(
    ("written", "stands", "most"),
    [
        ("200000", Bandwidth(2.0), False),
        ("21", Bandwidth(2.0), False),
        ("20", Bandwidth(2.0), True),
        ("200000/s", Bandwidth(2.0), True),
        ("200000/day", Bandwidth(0.001), True),
        ("0", Bandwidth(2.0), True),
        # Nothing to compare it with.
        ("200000", Bandwidth(0.0), True),
        ("200000", None, True),
        ("300", SLOW_NIGHTS, True),
        ("301", SLOW_NIGHTS, False),
        ("280", FALLING, True),
    ],
)
@pytest.mark.parametrize("more", [[], ["--ramp", "60"]], ids=["at once", "ramp"])
def test_a_number_without_a_unit_that_may_be_meant_a_day_is_refused(
    run, written, stands, most, more
):
    said, sent, noted = run("set", written, *more, stands=stands)
    assert (len(sent), len(noted)) == (most, most)
    if not most:
        assert f"write {written}/s if it is meant, or {written}/day" in said


def test_a_day_is_sent_as_it_was_written_with_the_rate_that_holds_now(run):
    day = "00:00=2/s 12:00=8/s"
    said, [message], noted = run("schedule", day, "--timezone", "Asia/Kolkata", "--ramp", "60")
    steps = [ScheduledRate(0, 2.0), ScheduledRate(43_200, 8.0)]
    now = message.crawls_per_second
    assert message == Bandwidth(now, message.set_at, 60.0, None, steps, "Asia/Kolkata")
    assert 2.0 <= now <= 8.0
    assert (said["schedule"], said["timezone"]) == ({"00:00": 2.0, "12:00": 8.0}, "Asia/Kolkata")
    # Midnight and noon in India are half past six in Greenwich.
    assert said["next_change_at"] % 43_200 == 23_400
    assert 0 < said["next_change_at"] - message.set_at <= 43_200
    assert [about for about, *_ in noted] == ["budget"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("00:00=2/s", "--timezone", "Mars/Olympus"), "no time zone 'Mars/Olympus'"),
        (("00:00=2/s 00:01=4/s", "--ramp", "61"), "a ramp of 61 s does not end"),
        (("00:60=2/s",), "no time of the day"),
        (("00:00:60=2/s",), "no time of the day"),
    ],
)
def test_a_day_that_coordinators_would_refuse_is_not_sent(run, arguments, reason):
    said, sent, noted = run("schedule", *arguments)
    assert reason in said
    assert "Traceback" not in said
    assert sent == noted == []


def test_what_was_decided_is_told_with_the_newest_last(run, monkeypatch):
    asked = []

    def last(_url, *arguments):
        asked.append(arguments)
        return [{"version": version} for version in (3, 2, 1)]

    monkeypatch.setattr(multipliers, "last_multipliers", last)
    said, *_ = run("history", "--last", "3", "--cause", "ramp", "--cause", "demand")
    assert [row["version"] for row in said] == [1, 2, 3]
    assert asked == [(3, ("ramp", "demand"))]
