"""Blocks are written to the server's log before a shard is held, and nobody notices."""

import psycopg
import pytest
from store_contents import SHARDS, fill

from shared.store.connection import connect
from shared.store.first_touches import touch_blocks

URLS = [f"https://host-{n % 7}.example/{n}" for n in range(4_000)]
TABLES = ("pages_1",)


@pytest.fixture
def command(store):
    fill(store, URLS)
    with connect(store, "test", autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE pages, page_urls")
        yield connection


def rows(connection):
    """All of them, with the transaction that wrote each and its place."""
    return [
        connection.execute(f"SELECT ctid, xmin, t::text FROM {table} AS t ORDER BY ctid").fetchall()
        for table in TABLES
    ]


def blocks(connection):
    """How many of each table have rows."""
    found = []
    for table in TABLES:
        query = f"SELECT count(DISTINCT (ctid::text::point)[0]) FROM {table}"
        found.append(connection.execute(query).fetchone()[0])
    return found


def whole_blocks_logged(connection, table):
    """Blocks that to delete all rows writes to the log as they are; nothing is deleted in the end.

    The first who writes after a checkpoint changes the page of transactions' numbers, too.
    """
    with connection.transaction(force_rollback=True):
        plan = connection.execute(
            f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) DELETE FROM {table}"
        ).fetchone()
    return plan[0][0]["Plan"].get("WAL FPI", 0)


def quiet():
    """Nothing else to do."""


def test_what_a_split_deletes_is_not_written_to_the_log_as_whole_blocks(command):
    assert SHARDS > 1
    counts = blocks(command)
    assert counts[0] > 10
    command.execute("CHECKPOINT")
    without = [whole_blocks_logged(command, table) for table in TABLES]
    assert all(logged >= count for logged, count in zip(without, counts, strict=True))

    command.execute("CHECKPOINT")
    assert touch_blocks(command, 1, quiet) == sum(counts)
    with_it = [whole_blocks_logged(command, table) for table in TABLES]
    # What is left is the map of what all can see, and the like.
    assert all(logged < 0.2 * count for logged, count in zip(with_it, counts, strict=True))


def test_no_row_is_changed_and_nobody_waits_or_is_waited_for(command, store):
    before = rows(command)
    [(page_id,)] = command.execute("SELECT page_id FROM pages_1 LIMIT 1").fetchall()
    with connect(store, "estimator") as other:
        # Somebody erases a page of the first block, and has not ended.
        other.execute("DELETE FROM pages_1 WHERE ctid = (SELECT min(ctid) FROM pages_1)")
        command.execute("SET lock_timeout = '1s'")
        assert touch_blocks(command, 1, quiet) == sum(blocks(command)) - 1
        other.rollback()
    assert rows(command) == before

    with connect(store, "estimator") as other, command.transaction():
        touch_blocks(command, 1, quiet)
        other.execute("SET lock_timeout = '1s'")
        other.execute("UPDATE pages_1 SET crawls = crawls + 1 WHERE page_id = %s", (page_id,))
        other.commit()


def test_it_says_something_between_two_transactions_and_bears_empty_tables(store, monkeypatch):
    monkeypatch.setattr("shared.store.first_touches._BLOCKS_AT_ONCE", 3)
    said = []
    with connect(store, "test", autocommit=True) as connection:
        assert touch_blocks(connection, 1, lambda: said.append(1)) == 0
        assert not said
        fill(store, URLS)
        assert touch_blocks(connection, 1, lambda: said.append(1)) == sum(blocks(connection))
    assert len(said) > 5


def test_a_server_that_is_away_is_said(command):
    command.execute("SELECT 1")
    command.close()
    with pytest.raises(psycopg.OperationalError):
        touch_blocks(command, 1, quiet)
