"""Which dead letters are meant: what cannot be any is refused, before anything is looked at."""

import pytest
from click.testing import CliRunner

from services.cli import dead_letters
from services.cli.dead_letters import Dealt
from services.cli.main import main


@pytest.mark.parametrize("action", ["list", "replay", "drop"])
@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--topic", "crawl-outcome", "is none of bandwidth, "),
        ("--reason", "", "in every error"),
        ("--offsets", "9-1", "ends before it begins"),
        ("--since", "-5h", "yet to come"),
        ("--since", "9e9", "yet to come"),
    ],
)
def test_a_choice_that_says_nothing_is_refused(monkeypatch, tmp_path, action, option, value, why):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    result = CliRunner().invoke(main, ["dead-letters", action, option, value])
    assert result.exit_code == 2
    assert why in result.output
    assert option in result.output


@pytest.fixture
def dealt(monkeypatch):
    """What letters a command deals with."""
    chosen = []

    async def deal_with(_settings, choice, action, **_options):
        chosen.append((action, choice.is_everything))
        return Dealt()

    monkeypatch.setattr(dead_letters, "deal_with", deal_with)
    return chosen


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--all", "--stage", "estimator"]], ids=str)
def test_all_letters_are_dropped_only_where_that_is_said(dealt, more):
    result = CliRunner().invoke(main, ["dead-letters", "drop", *more])
    assert result.exit_code == 2
    assert "--all" in result.output
    assert dealt == []


def test_letters_are_dropped_that_are_named_or_all_and_replayed_without_a_word(dealt):
    for arguments in (["drop", "--all"], ["drop", "--offsets", "3-"], ["replay"]):
        assert CliRunner().invoke(main, ["dead-letters", *arguments]).exit_code == 0
    assert dealt == [("dropped", True), ("dropped", False), ("replayed", True)]
