"""A database need not be in UTF-8: all that is read and written is text all the same."""

import uuid

import psycopg
import pytest
from page_batches import page_batch

from migrations.upgrade import migrate
from services.cli.doctor.database import look_at_databases
from shared.contracts.databases import Databases
from shared.store.changes import Change, last_changes, note_change
from shared.store.connection import connect
from shared.store.imports import import_pages

SHARDS = 2
URL = "https://a.example/"


@pytest.fixture(params=["SQL_ASCII", "LATIN1", "UTF8"])
def database(request, postgres_server):
    """The URL of one, and its encoding."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0"
        )
        yield postgres_server.database_uri(name), request.param
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_of_any_encoding_is_migrated_and_used(database):
    url, encoding = database
    migrate(url, SHARDS)
    assert import_pages(url, SHARDS, [page_batch([URL])], now=1.7e9).added == 1
    change = Change(1.7e9, "Zoë", "host", "a.example", {"erases": 7})
    note_change(url, change)
    assert last_changes(url, 1) == [change]
    with connect(url, "test") as connection:
        assert connection.info.encoding == "utf-8"
        [(host,)] = connection.execute("SELECT host FROM hosts").fetchall()
    assert host == "a.example"
    found = look_at_databases(Databases.alone(url), SHARDS)
    [finding] = [one for one in found if one.about == "encoding"]
    assert (finding.level, finding.found) == ("ok" if encoding == "UTF8" else "note", encoding)
