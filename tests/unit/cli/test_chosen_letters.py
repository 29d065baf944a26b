"""Which dead letters are meant: what cannot be any is refused, before anything is looked at."""

import pytest
from click.testing import CliRunner

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
