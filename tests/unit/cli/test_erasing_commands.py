"""Commands that erase count first, and ask."""

import itertools
import json
import time

import pytest
from click.testing import CliRunner

from services.cli import audit, erasing
from services.cli.errors import SystemFailed
from services.cli.main import main
from shared.rules.page_events import CONFIRMATIONS, FIRST_LOOK_SECONDS, LONGEST_RETRY_SECONDS
from shared.runtime.settings import Settings
from shared.store import erased_traces


@pytest.fixture
def erased(monkeypatch):
    """What was erased; there are seven pages."""
    done = []
    monkeypatch.setattr(erasing, "count", lambda *_: 7)
    monkeypatch.setattr(erasing, "purge", lambda *given: done.append(given))
    monkeypatch.setattr(erasing, "erase_host", lambda *given: done.append(given))
    watched = {"sites": [], "sources": ["https://a.example/map.xml"], "subscriptions": []}
    monkeypatch.setattr(erased_traces, "watched_of_host", lambda *_: watched)
    return done


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (("pages", "purge"), "Erase 7 pages for good?"),
        (
            ("hosts", "erase", "A.example"),
            "Erase a.example with 7 pages and 1 watched sources for good?",
        ),
    ],
)
def test_nothing_is_erased_before_somebody_agrees(erased, arguments, question):
    refused = CliRunner().invoke(main, list(arguments), input="n\n", catch_exceptions=False)
    assert refused.exit_code != 0
    assert question in refused.output
    counted = CliRunner().invoke(main, [*arguments, "--dry-run", "--json"], catch_exceptions=False)
    assert counted.exit_code == 0
    assert "7" in json.dumps(json.loads(counted.stdout))
    # Whoever says both wants to be sure that nothing happens.
    counted = CliRunner().invoke(main, [*arguments, "--dry-run", "--yes"], catch_exceptions=False)
    assert "would erase" in counted.output
    assert erased == []


@pytest.mark.parametrize(
    ("options", "removed", "gone", "host"),
    [
        ((), True, True, None),
        (("--only", "removed"), True, False, None),
        (("--only", "gone", "--host", "A.example"), False, True, "a.example"),
    ],
)
def test_no_other_pages_go_than_those_that_were_said_and_counted(
    monkeypatch, options, removed, gone, host
):
    counted, done = [], []

    def count(_settings, wanted):
        counted.append(wanted)
        return 7

    def purge(_settings, wanted, _progress):
        done.append(wanted)
        return erasing.Erasure(7, 9)

    monkeypatch.setattr(erasing, "count", count)
    monkeypatch.setattr(erasing, "purge", purge)
    monkeypatch.setattr(audit, "note", lambda *_: None)
    arguments = ["pages", "purge", "--days", "10", *options]
    asked = CliRunner().invoke(main, arguments, input="y\n", catch_exceptions=False)
    assert asked.exit_code == 0, asked.output
    assert counted == done
    [wanted] = done
    assert (wanted.removed, wanted.gone, wanted.host) == (removed, gone, host)
    assert wanted.any_status is False
    assert abs(wanted.before - (time.time() - 10 * 86_400)) < 600
    # By when pages are looked at again it is told since when they have been gone.
    assert wanted.rhythm == (CONFIRMATIONS, FIRST_LOOK_SECONDS, LONGEST_RETRY_SECONDS)


@pytest.mark.parametrize("arguments", [("pages", "purge"), ("hosts", "erase", "a.example")])
def test_who_asks_for_more_than_was_erased_is_told_and_fails(erased, monkeypatch, arguments):
    for name in ("purge", "erase_host"):
        monkeypatch.setattr(erasing, name, lambda *_: erasing.Erasure(4, 9, left=3))
    done = CliRunner().invoke(main, [*arguments, "--yes", "--json"], catch_exceptions=False)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["pages"] == 4
    assert "3 pages are still there" in done.stderr


async def test_a_shard_that_stands_still_is_waited_for_no_longer_as_others_go_on(monkeypatch):
    moving = itertools.count(10)

    def read_applied(*_):
        return {("page-updates", 0): 5, ("page-updates", 1): 3, ("page-signals", 1): next(moving)}

    monkeypatch.setattr(erasing, "read_applied", read_applied)
    monkeypatch.setattr(erasing, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(erasing, "PATIENCE_SECONDS", 0.01)
    eraser = erasing.Eraser(Settings(), None)
    await eraser._applied({("page-updates", 0): 5, ("page-updates", 1): 3})
    with pytest.raises(SystemFailed, match="no estimator applies page-updates"):
        await eraser._applied({("page-updates", 0): 5, ("page-updates", 1): 4})
