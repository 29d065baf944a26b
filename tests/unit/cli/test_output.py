"""Answers as tables and as JSON."""

import json
import math

import pytest
from click.testing import CliRunner

from services.cli.errors import without_password
from services.cli.main import main
from shared.terminal.output import show, show_rows, text
from shared.terminal.visible import visible


def test_one_thing_is_a_line_a_value(capsys) -> None:
    show({"crawl_value": 0.123456789, "host": None}, as_json=False)

    assert capsys.readouterr().out == "crawl value  0.123457\nhost         -\n"


def test_rows_are_aligned(capsys) -> None:
    show_rows([{"a": 1, "b": "x"}, {"a": 22, "b": "y"}], as_json=False, empty="none")

    assert capsys.readouterr().out == "a   b\n1   x\n22  y\n"


def test_no_rows_say_so(capsys) -> None:
    show_rows([], as_json=False, empty="no dead letters")

    assert capsys.readouterr().out == "no dead letters\n"


def test_json_has_no_infinity(capsys) -> None:
    show({"due": math.inf, "list": [math.nan, {"x": 1.5}]}, as_json=True)

    assert json.loads(capsys.readouterr().out) == {"due": None, "list": [None, {"x": 1.5}]}


def test_nested_values_are_readable() -> None:
    assert text({"p50": 0.5, "p99": None}) == "p50 0.5, p99 -"
    assert text([1.0, "a"]) == "1, a"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u@h:1/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://u:p%40q@h/d?sslmode=require", "postgresql://u@h/d?sslmode=require"),
        ("postgresql://u:p/q?r@s@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d?password=p&user=u", "postgresql://h/d?password=***&user=u"),
        ("postgresql://u@h/d?sslpassword=p", "postgresql://u@h/d?sslpassword=***"),
        ("postgresql://h/d?oauth_client_secret=p", "postgresql://h/d?oauth_client_secret=***"),
        ("host=h scram_client_key=p user=u", "host=h scram_client_key=*** user=u"),
        ("host=h password=p user=u", "host=h password=*** user=u"),
        ("host=h password='p q' user=u", "host=h password=*** user=u"),
        ("host=h password = p user=u@v", "host=h password = *** user=u@v"),
        ("host=h password=p&q@r user=u", "host=h password=*** user=u"),
        (r"host=h password=p\ q user=u", "host=h password=*** user=u"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_what_strangers_have_written_moves_no_terminal(capsys):
    # A title is set, the screen is emptied, a line is made up; letters of all scripts stay.
    written = "\x1b]0;x\x07\x1b[2J\r\nall is well\u202e \x9b é 中"
    shown = "\\x1b]0;x\\x07\\x1b[2J\\r\\nall is well\\u202e \\x9b é 中"
    assert visible(written) == text(written) == shown
    assert text({written: 1}) == f"{shown} 1"
    show({"message": written, "notes": [written]}, as_json=False)
    show_rows([{"message": written}], as_json=False, empty="")
    assert capsys.readouterr().out.splitlines() == [
        f"message  {shown}",
        f"notes    {shown}",
        "message",
        shown,
    ]


def test_hosts_that_are_none_move_no_terminal(monkeypatch) -> None:
    host = {"host": "\x9b2J\u202e.example", "max_crawls_per_second": 1.0, "by": "the default"}
    host |= dict.fromkeys(("max_open_requests", "blocked_until"))
    monkeypatch.setattr("shared.views.answers.hosts_answer", lambda *_: ([host], {}))
    said = CliRunner().invoke(main, ["hosts", "list"], catch_exceptions=False).output
    assert said.startswith("\\x9b2J\\u202e.example ")
