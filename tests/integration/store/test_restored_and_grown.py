"""One of two databases is restored from a dump of before growths, and grows as the other did."""

import uuid

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from test_shared_databases import (
    SHARDS,
    assert_each_is_where_it_belongs,
    databases,
    filled,
    grown,
    migrated,
)

from services.cli.shards import shards_now
from shared.contracts.databases import Databases
from shared.contracts.layout import Layout
from shared.store.layout import fetch_layout

__all__ = ["databases", "filled", "migrated"]


@pytest.fixture
def restored(filled, postgres_server):
    """The same two, of which the other is as it was before it grew: use `filled` before it."""
    home, other = filled.each
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE {conninfo_to_dict(other.url)['dbname']}"
        )
        yield Databases.parse(f"0-1={home.url},2-3={postgres_server.database_uri(name)}")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_it_grows_by_the_same_command_and_the_other_stays_as_it_is(filled, restored):
    grown(filled, 2 * SHARDS)
    _, behind = restored.each
    assert fetch_layout(behind.url) == Layout.of(SHARDS)

    grown(restored, 2 * SHARDS)
    assert_each_is_where_it_belongs(restored, Layout(8, 4, frozenset(range(4))))
    assert not shards_now(restored)[0]["is_growing"]
    assert not any(fetch_layout(one.url).is_growing for one in restored.each)
    grown(restored, 4 * SHARDS)
    assert_each_is_where_it_belongs(restored, Layout(16, 8, frozenset(range(8))))


@pytest.mark.long
def test_it_catches_up_with_two_growths_at_once(filled, restored):
    grown(filled, 2 * SHARDS)
    grown(filled, 4 * SHARDS)

    grown(restored, 4 * SHARDS)
    assert_each_is_where_it_belongs(restored, Layout(16, 8, frozenset(range(8))))
    assert not shards_now(restored)[0]["is_growing"]
    grown(restored, 8 * SHARDS)
    assert_each_is_where_it_belongs(restored, Layout(32, 16, frozenset(range(16))))
