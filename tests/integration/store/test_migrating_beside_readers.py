"""`freshet migrate` while somebody reads a table that it alters, as a dump does for hours."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from alembic import command
from store_contents import SHARDS, fill, urls_of_shard
from structlog.testing import capture_logs

from migrations import upgrade
from migrations.engine import alchemy_engine
from migrations.upgrade import alembic_config, migrate
from shared.store.connection import connect

BEFORE_COLUMNS_OF_HOSTS = "0027"
WAITS = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def older_store(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database whose next migration alters `hosts`."""
    fill(store, urls_of_shard(1, 10))
    with alchemy_engine(store).begin() as connection:
        command.downgrade(alembic_config(connection), BEFORE_COLUMNS_OF_HOSTS)
    monkeypatch.setattr(upgrade, "PAUSE_SECONDS", 0.2)
    return store


@contextmanager
def migrating(store: str) -> Iterator[None]:
    """While this is entered it waits for a table; it ends when nobody uses that any more."""
    done = threading.Thread(target=migrate, args=(store, SHARDS))
    with connect(store, "dump", autocommit=True) as dump:
        with dump.transaction():
            dump.execute("LOCK TABLE hosts IN ACCESS SHARE MODE")
            done.start()
            with connect(store, "look", autocommit=True) as look:
                while done.is_alive() and not look.execute(WAITS).fetchone()[0]:
                    pass
            assert done.is_alive()
            yield
        done.join(60)
        assert not done.is_alive()


def test_who_reads_a_table_that_is_to_be_altered_keeps_no_worker_waiting(older_store):
    with migrating(older_store), connect(older_store, "worker") as worker:
        # More patient than a migration is at a time, and less than a dump takes.
        worker.execute("SET lock_timeout = '30s'")
        assert worker.execute("SELECT count(*) FROM hosts").fetchone() == (5,)


def test_it_is_said_whom_a_migration_waits_for(older_store):
    with capture_logs() as said:
        with migrating(older_store):
            while not said:
                time.sleep(0.01)
        assert said[0]["longest_transaction"] == "freshet-dump"
        assert said[-1]["event"] == "database migrated"
