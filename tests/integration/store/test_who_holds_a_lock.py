"""The runbook of FreshetShardLocked names who keeps estimators waiting, and nobody else."""

import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psycopg

from shared.store.connection import connect

RUNBOOK = Path(__file__).parents[3] / "docs/operate/alerts/FreshetShardLocked.md"
[QUERY] = re.findall(r"```sql\n(.*?) \\watch 0.1\n```", RUNBOOK.read_text(), re.DOTALL)

ROW = "SELECT 1 FROM deployment FOR UPDATE"


@contextmanager
def waiting(url, role, statement):
    """A session that waits for a lock; ended in the end."""
    connection = connect(url, role, autocommit=True)

    def wait():
        try:
            connection.execute("SET lock_timeout = 0")
            connection.execute(statement)
        except psycopg.Error:
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield connection.info.backend_pid
    finally:
        connection.cancel()
        thread.join()
        connection.close()


def named(url):
    """The rows, once there are any: pid, application's name, whom it waits for."""
    deadline = time.monotonic() + 10.0
    with psycopg.connect(url, autocommit=True) as asking:
        while time.monotonic() < deadline:
            if rows := asking.execute(QUERY).fetchall():
                return [(row[0], row[1], row[5]) for row in rows]
            time.sleep(0.1)
    return []


def test_the_runbooks_query_names_who_holds_a_row(store):
    with (
        psycopg.connect(store, application_name="psql") as people,
        psycopg.connect(store, application_name="pg_dump") as dump,
    ):
        people.execute(ROW)
        dump.execute("SELECT count(*) FROM pages")
        with waiting(store, "estimator", ROW):
            assert named(store) == [(people.info.backend_pid, "psql", [])]


def test_a_growth_that_splits_the_shard_is_named_as_such(store):
    with connect(store, "cli") as growth:
        growth.execute(ROW)
        with waiting(store, "estimator", ROW):
            assert named(store) == [(growth.info.backend_pid, "freshet-cli", [])]


def test_a_dump_is_not_named_but_the_statement_that_waits_for_it(store):
    with psycopg.connect(store, application_name="pg_dump") as dump:
        dump.execute("LOCK TABLE pages IN ACCESS SHARE MODE")
        with waiting(store, "psql", "ALTER TABLE pages ADD COLUMN more int") as altering:
            time.sleep(0.3)
            with waiting(store, "estimator", "SELECT count(*) FROM pages"):
                assert named(store) == [(altering, "freshet-psql", [dump.info.backend_pid])]


def test_nobody_is_named_where_nobody_waits(store):
    with psycopg.connect(store) as people, psycopg.connect(store) as asking:
        people.execute(ROW)
        assert asking.execute(QUERY).fetchall() == []
