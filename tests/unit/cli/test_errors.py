"""What went wrong, in one line and an exit code."""

import click
import psycopg
import pytest

from deploy.local.process import StartError
from services.cli.errors import SystemFailed, UserError, explained
from services.run.errors import RunFailed, RunRefused


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (RunRefused("another run uses .freshet: stop it"), UserError, 2),
        (RunFailed("scheduler dies; see its log"), SystemFailed, 1),
        (StartError("postgres does not come up"), SystemFailed, 1),
    ],
)
def test_a_run_that_does_not_begin_says_why_in_its_own_words(error, kind, code):
    with pytest.raises(click.ClickException) as told, explained():
        raise error

    assert type(told.value) is kind
    assert told.value.exit_code == code
    assert told.value.message == str(error)


def test_an_unknown_fault_is_not_dressed_up():
    with pytest.raises(KeyError), explained():
        raise KeyError("a bug")


@pytest.mark.parametrize("kind", [psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn])
def test_a_schema_of_before_is_to_be_migrated(monkeypatch, kind):
    monkeypatch.setenv("DATABASE_URL", "postgresql://db/freshet")
    with pytest.raises(UserError) as told, explained():
        raise kind("page_class does not exist\nLINE 1: SELECT page_class")

    assert "postgresql://db/freshet" in told.value.message
    assert "(page_class does not exist): run `freshet migrate`" in told.value.message


def test_where_there_are_several_databases_their_setting_is_named(monkeypatch):
    urls = "0-1=postgresql://u:hidden@a/pages,2-3=postgresql://u:hidden@b/pages"
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("FRESHET_PARTITIONS", "4")
    monkeypatch.setenv("FRESHET_DATABASES", urls)
    with pytest.raises(UserError) as told, explained():
        raise psycopg.OperationalError("connection refused")

    assert "set FRESHET_DATABASES" in told.value.message
    assert "hidden" not in told.value.message
