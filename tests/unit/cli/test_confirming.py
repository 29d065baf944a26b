"""Whoever is not there is not asked: it is said what to give instead, before anything is asked."""

import os
import sys

import click
import pytest
from click.testing import CliRunner

from services.cli import confirming, erasing, growth, positions, selected_pages
from services.cli.errors import SystemFailed
from services.cli.main import main
from shared.contracts.databases import Databases
from shared.contracts.layout import Layout
from shared.store import erased_traces


@pytest.fixture
def stdin(monkeypatch):
    """A function: what standard input has, in a file or a pipe."""
    opened = []

    def of(text):
        reads, writes = os.pipe()
        os.write(writes, text)
        os.close(writes)
        opened.append(open(reads))  # noqa: SIM115 - closed below
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield of
    for file in opened:
        file.close()


def test_where_input_is_over_nothing_is_asked(stdin, capsys):
    stdin(b"")
    with pytest.raises(SystemFailed, match="there is nobody to ask: give --yes"):
        confirming.confirm("Erase all?")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_a_program_may_answer_and_answers_are_asked_for_on_standard_error(stdin, capsys):
    stdin(b"y\n")
    confirming.confirm("Erase all?")
    said = capsys.readouterr()
    assert "Erase all?" not in said.out
    assert "Erase all?" in said.err
    stdin(b"n\n")
    with pytest.raises(click.Abort):
        confirming.confirm("Erase all?")


@pytest.fixture
def counted(monkeypatch):
    """Commands that have counted what they are about, and nobody before them."""

    async def places(_settings):
        return [positions.Place("ingester", "signals", 0, 5, 7, 9, None, None)], {}

    monkeypatch.setattr(confirming, "is_nobody_there", lambda: True)
    monkeypatch.setattr(erasing, "count", lambda *_: 7)
    monkeypatch.setattr(erased_traces, "watched_of_host", lambda *_: {})
    monkeypatch.setattr(selected_pages, "count_under", lambda *_, **_by: 7)
    monkeypatch.setattr(positions, "places", places)


@pytest.mark.parametrize(
    "arguments",
    [
        ("hosts", "erase", "a.example"),
        ("pages", "purge"),
        ("pages", "remove", "--host", "a.example"),
        ("pages", "max-age", "--host", "a.example", "--none"),
        ("positions", "settle", "--topic", "signals"),
    ],
    ids=" ".join,
)
def test_each_command_that_asks_says_so(counted, arguments):
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 1
    assert "there is nobody to ask: give --yes" in done.stderr
    assert "[y/N]" not in done.output


def test_so_does_a_growth(counted):
    databases = Databases.alone("postgresql://a/pages")
    before = {databases.home: Layout(4, 4, frozenset())}
    with pytest.raises(SystemFailed, match="there is nobody to ask"):
        growth.is_wanted(databases, before, 8, dry_run=False, yes=False, as_json=False)
