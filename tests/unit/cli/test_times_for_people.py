"""Times are told to people as they read them, and to programs as they compute with them."""

import contextlib
import json
import math

import pytest
from click.testing import CliRunner

from services.cli.commands import hosts, subscriptions
from services.cli.main import main
from shared.store import subscriptions as stored
from shared.views import answers
from shared.views.host_reasons import when

UNTIL = 1.7e9 + 12 * 3600 + 7


@pytest.fixture
def show(monkeypatch, tmp_path):
    """A function: what `freshet hosts show` prints."""
    monkeypatch.chdir(tmp_path)
    rules = {
        "host": "a.example",
        "blocked_until": UNTIL,
        "operators_block_until": UNTIL,
        "asked_until": None,
        "failed_at": UNTIL - 1.0,
        "failures": 3,
        "named_group": None,
    }
    monkeypatch.setattr(answers, "host_answer", lambda _settings, _host: dict(rules))
    monkeypatch.setattr(hosts, "_groups_of", lambda *_: ({"group": None}, None))

    def shown(*more):
        result = CliRunner().invoke(main, ["hosts", "show", "a.example", *more])
        assert result.exit_code == 0, result.output
        return result.stdout

    return shown


def test_people_read_until_when_a_host_is_blocked(show):
    lines = dict(line.split("  ", 1) for line in show().splitlines())
    assert lines["blocked until"].strip() == "2023-11-15 10:13:27Z"
    assert lines["operators block until"].strip() == "2023-11-15 10:13:27Z"
    assert lines["failed at"].strip() == "2023-11-15 10:13:26Z"
    assert lines["asked until"].strip() == "-"
    assert lines["failures"].strip() == "3"


def test_programs_get_seconds(show):
    assert json.loads(show("--json"))["blocked_until"] == UNTIL


@pytest.mark.parametrize(("ends", "told"), [(UNTIL, "2023-11-15 10:13:27Z"), (-math.inf, "-")])
def test_a_subscription_that_no_hub_has_granted_yet_has_no_end(monkeypatch, ends, told):
    topic = "https://a.example/feed"
    found = stored.Subscription("0", topic, None, "", "", "", "wanted", "", 0, ends)
    monkeypatch.setattr(stored, "list_subscriptions", lambda _: [found])
    monkeypatch.setattr(subscriptions, "_connection", contextlib.nullcontext)
    for more in ([], ["--json"]):
        result = CliRunner().invoke(main, ["subscriptions", "list", *more])
        assert result.exit_code == 0, result.exception
        if more:
            expected = ends if ends > 0 else None
            assert json.loads(result.stdout)[0]["lease_ends"] == expected
        else:
            assert told in result.stdout


@pytest.mark.parametrize("time", [253_402_300_800.0, 1e12, 1e300])
def test_a_page_that_is_due_after_all_dates_is_said_to_be(time):
    assert when(time, 0.0) == f"after the year 9999 (in {time / 86_400.0:.3g} days)"
    assert when(253_402_300_799.0, 0.0).startswith("9999-12-31 23:59:59Z")
