"""Answers that were taken for more than they were: of brokers that are away, names that are not
known, and dry runs."""

import json
import socket

import pytest
from click.testing import CliRunner
from taken_messages import Taken, publish_by

from services.cli import audit, backup, erasing, group_limits
from services.cli.commands import doctor, status
from services.cli.main import main
from services.coordinator.core import Coordination, Moment
from services.coordinator.picture import Picture
from shared.contracts.messages import Bandwidth
from shared.runtime.findings import Finding
from shared.store import erased_traces, host_listing

NOW = Moment(clock=1e9, wall=100.0)


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def nobody(monkeypatch):
    """Where the settings look for a broker there is none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", address)


def test_topics_of_which_only_the_settings_tell_fail_the_command(nobody):
    done = run("topics", "list", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)
    assert "no broker can be reached: partitions are those of the settings" in done.stderr


def test_a_broker_that_is_away_is_noticed_before_what_comes_of_it():
    coordination = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    coordination.lead(3, "one")
    coordination.receive_bandwidth(Bandwidth(7.0))
    assert "the broker cannot be reached" in Picture(coordination, lambda: True).notice(NOW)
    assert "no shard reports" in Picture(coordination).notice(NOW)


def told(live, now):
    picture = {"live_shards": live, "now": {"fleet_capacity": None} | now}
    return [status._SAYINGS[name](picture, picture["now"]) for name in ("unused", "fleet")]


def test_of_shards_that_do_not_report_nothing_is_known():
    assert all("not known" in line for line in told(0, {"unused": 0.0}))


def test_a_budget_that_is_used_up_has_no_reason_for_what_is_left():
    assert told(2, {"unused": 0.0})[0] == "0 crawls/s of the budget"
    assert told(2, {"unused": 1.5})[0] == "1.5 crawls/s of the budget: no page is to be crawled"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("explain", "notaurl"), "notaurl: not an absolute URL"),
        (("crawl", "https://a.example/", "foo"), "foo: not an absolute URL"),
        (("crawl", "http://localhost/x"), "http://localhost/x: host 'localhost'"),
        (("pages", "remove", "https://a.example/", "foo"), "foo: not an absolute URL"),
        (("pages", "remove", "--prefix", "foo"), "foo: not an absolute URL"),
        (("crawl", "a\x1b[2J"), "a\\x1b[2J: the URL has control"),
        (("crawl", "x" * 5_000), f"{'x' * 99}…: the URL has 5000 characters"),
    ],
)
def test_a_url_that_is_refused_is_named(arguments, named):
    done = run(*arguments)
    assert done.exit_code == 2
    assert f"Error: {named}" in done.stderr


@pytest.fixture
def limits(monkeypatch):
    """What is published of groups, of which one has a limit."""
    sent = []

    async def publish(_settings, group, rate):
        sent.append((group, rate))

    async def standing(_settings):
        return {"shop.example": 2.0}

    monkeypatch.setattr(group_limits, "publish_limit", publish)
    monkeypatch.setattr(group_limits, "standing_limits", standing)
    monkeypatch.setattr(audit, "note", lambda *_: None)
    return sent


def test_a_group_without_a_limit_is_named_and_nothing_is_published(limits):
    done = run("groups", "unlimit", "shopp.example")
    assert (done.exit_code, limits) == (0, [])
    assert "shopp.example has no limit of its own" in done.stderr
    done = run("groups", "unlimit", "shop.example")
    assert limits == [("shop.example", None)]
    assert done.stderr == ""


@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_host_of_which_there_is_nothing_to_erase_is_named(monkeypatch, how, is_known):
    row = {"host": "a.example"} if is_known else None
    monkeypatch.setattr(host_listing, "read_host", lambda *_: row)
    monkeypatch.setattr(erasing, "count", lambda *_: 0)
    monkeypatch.setattr(erasing, "erase_host", lambda *_: erasing.Erasure(0, 0))
    monkeypatch.setattr(erased_traces, "watched_of_host", lambda *_: {})
    monkeypatch.setattr(audit, "note", lambda *_: None)
    done = run("hosts", "erase", "a.example", how)
    assert done.exit_code == 0  # it may have been erased before
    assert ("no page of a.example is known" in done.stderr) is not is_known


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_dry_run_of_a_restore_says_what_it_would_do(monkeypatch, tmp_path, options):
    async def nothing_stands(_settings, _topic):
        return {}

    monkeypatch.setattr(backup, "all_standing", nothing_stands)
    publish_by(monkeypatch, Taken)
    (tmp_path / "copy").write_text(
        '{"freshet_backup":1,"saved_at":1.7e9}\n'
        '{"topic":"bandwidth","key":"global","message":{"crawls_per_second":5.0}}\n'
    )
    done = run("backup", "restore", str(tmp_path / "copy"), "--dry-run", *options)
    assert done.exit_code == 0, done.output
    assert ("would_restore" if options else "would restore") in done.stdout
    assert "restored" not in done.stdout


def test_a_finding_is_a_line_however_long_where_it_is_no_terminal(monkeypatch):
    long = "word " * 60
    findings = [
        Finding("ok", "version", "3"),
        Finding("risk", "x" * 50, long, "wanted", "promise", long),
    ]
    monkeypatch.setattr(doctor, "_look", lambda _settings: {"broker": findings})
    done = run("doctor")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "broker"
    firsts = [line.split()[0] for line in lines[1:-1]]
    assert firsts == ["risk", "should", "endangered", "do", "ok"]
    assert lines[1] == f"risk  {'x' * 50}  {long.strip()}"
    assert lines[-1] == "1 promise is at risk"
