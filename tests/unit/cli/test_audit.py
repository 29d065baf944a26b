"""A change of the budget is noted under somebody's name, and never fails for want of the note."""

import socket

import psycopg
import pytest

from services.cli import audit
from shared.runtime.settings import Settings


def settings(**more):
    return Settings(database_url="postgresql://freshet@127.0.0.1:1/freshet", **more)


def test_a_change_holds_though_the_database_be_away(capsys):
    audit.note(settings(operator="ada"), "budget", None, {"crawls_per_second": 1.0})
    assert "could not be noted" in capsys.readouterr().err


def test_what_is_noted_says_who_and_what(monkeypatch):
    noted = []
    monkeypatch.setattr(audit, "note_change", lambda _url, change: noted.append(change))
    audit.note(settings(operator="ada"), "host", "a.example", {"max_crawls_per_second": 2.0})
    [change] = noted
    assert change[1:] == ("ada", "host", "a.example", {"max_crawls_per_second": 2.0})


@pytest.mark.parametrize("nameless", [KeyError, OSError])
def test_without_a_name_it_is_the_user_and_the_machine(monkeypatch, nameless):
    monkeypatch.setattr(audit.getpass, "getuser", lambda: "eve")
    assert audit.who(settings()) == f"eve@{socket.gethostname()}"

    def none():
        raise nameless

    monkeypatch.setattr(audit.getpass, "getuser", none)
    assert audit.who(settings()) == f"somebody@{socket.gethostname()}"


def test_a_user_whose_name_is_no_text_is_noted_all_the_same(monkeypatch):
    monkeypatch.setattr(audit.getpass, "getuser", lambda: "J\udcfcrgen")
    assert audit.who(settings()) == f"J\\udcfcrgen@{socket.gethostname()}"


def test_only_faults_of_the_database_are_passed_over(monkeypatch):
    def fail(_url, _change):
        raise psycopg.OperationalError("away\nfor long")

    monkeypatch.setattr(audit, "note_change", fail)
    audit.note(settings(), "budget", None, {})
    monkeypatch.setattr(audit, "note_change", lambda _url, _change: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        audit.note(settings(), "budget", None, {})
