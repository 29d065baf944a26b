"""Commands ask the database that has what they are about, and tell of each by itself."""

import psycopg
import pytest

from services.cli import group_limits
from services.cli.commands import doctor
from services.cli.doctor import broker, clock, database
from shared.contracts.databases import Databases
from shared.runtime.findings import Finding
from shared.runtime.settings import Settings

A, B = "postgresql://a/pages", "postgresql://b/pages"


@pytest.fixture
def settings():
    return Settings(databases=f"0-1={A},2-3={B}", partitions=4)


def test_a_hosts_named_group_is_asked_of_the_database_that_has_the_host(settings, monkeypatch):
    asked = {}
    monkeypatch.setattr(group_limits, "read_host", lambda url, host: asked.update({host: url}))
    for number in range(8):
        group_limits.named_group(settings, f"{number}.example")
    databases = Databases.parse(f"0-1={A},2-3={B}")
    assert asked == {host: databases.of_host(host).url for host in asked}
    assert set(asked.values()) == {A, B}


def test_a_database_that_is_away_hides_no_other_ones_clock(settings, monkeypatch):
    def look(url):
        if url == A:
            raise psycopg.OperationalError("connection refused")
        return Finding("ok", "database", "0 s ahead")

    async def nothing(_settings):
        return []

    monkeypatch.setattr(clock, "look_at_database_clock", look)
    monkeypatch.setattr(clock, "look_at_broker_clock", lambda _settings: Finding("ok", "", ""))
    monkeypatch.setattr(broker, "look_at_broker", nothing)
    monkeypatch.setattr(database, "look_at_databases", lambda *_: [])
    monkeypatch.setattr("services.cli.kafka.require_broker", lambda _settings: None)
    found = doctor._look(settings)["clock"]
    assert [one.level for one in found] == ["ok", "risk", "ok"]
    assert found[1].about == "database's time (0-1/4)"


@pytest.mark.parametrize("kind", [psycopg.OperationalError, psycopg.errors.UndefinedTable])
def test_a_database_that_cannot_be_looked_at_hides_nothing_of_the_others(
    settings, monkeypatch, kind
):
    def look(one, _databases, _shards):
        if one.url == A:
            raise kind("no")
        return [Finding("ok", "version", "PostgreSQL 17")]

    monkeypatch.setattr(database, "look_at_database", look)
    found = database.look_at_databases(Databases.parse(f"0-1={A},2-3={B}"), 4)
    assert [(one.level, one.about, one.found) for one in found] == [
        ("risk", "server (0-1/4)", "no"),
        ("ok", "version (2-3/4)", "PostgreSQL 17"),
    ]
