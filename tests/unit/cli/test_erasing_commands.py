"""Commands that erase count first, and ask."""

import json

import pytest
from click.testing import CliRunner

from services.cli import erasing
from services.cli.main import main
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
    assert erased == []
