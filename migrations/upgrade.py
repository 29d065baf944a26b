"""Bringing a database to the newest schema."""

from pathlib import Path
from typing import Final

import psycopg
import structlog
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, wait_fixed

from migrations.engine import alchemy_engine, psycopg_of
from shared.store.connection import connect
from shared.store.deployment import StoreMismatch, require_held, require_shards
from shared.store.layout import read_layout
from shared.store.partitions import ensure_partitions, lock_schema
from shared.store.roles import ensure_roles

log = structlog.get_logger(__name__)

_NOBODY_LEADS = """
INSERT INTO coordinator_lease (id, epoch, holder, beat) VALUES (1, 0, '', 0) ON CONFLICT DO NOTHING
"""
"""Where the row is gone, as after a restore of the schema alone: coordinators may not make it."""

_HOLD = """
UPDATE deployment SET shards_held = :held WHERE shards_held IS DISTINCT FROM :held
AND NOT EXISTS (SELECT FROM pages) AND NOT EXISTS (SELECT FROM stream_positions)
"""
"""Only while there is nothing in it."""


LOCK_SECONDS: Final = 3
"""A table is waited for so long at a time: all who come to it meanwhile wait behind us."""

PAUSE_SECONDS: Final = 5.0
"""Between two attempts, so that they get on with their work."""

_LONGEST_TRANSACTION: Final = """
SELECT pid, coalesce(nullif(application_name, ''), 'somebody without a name') AS name,
    extract(epoch FROM now() - xact_start)::float8 AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
ORDER BY xact_start LIMIT 1
"""


def migrate(database_url: str, shards: int, held: str | None = None) -> int:
    """Bring the database to the newest schema, with a partition for each shard. Idempotent.

    Waits for whoever reads a table that it alters, as a dump does, for as long as it takes; it lets
    the workers past meanwhile, and says whom it waits for. In a growth, shards that have no hosts
    yet get theirs when the shard of before is split.

    Args:
        database_url: libpq URL.
        shards: of a database that is new; of one that is there, its number or one it grew from.
        held: those that it is to have, of several databases; None: it is the only one.

    Returns:
        how many shards the database has.

    Raises:
        StoreMismatch: the database was made for another number of shards, or for others of them, or
            is of a newer version.
        psycopg.OperationalError: the server cannot be reached.
    """
    attempts = Retrying(
        retry=retry_if_exception(_is_table_in_use),
        wait=wait_fixed(PAUSE_SECONDS),
        before_sleep=lambda _: _say_whom_we_wait_for(database_url),
    )
    return attempts(_migrate, database_url, shards, held)


def _migrate(database_url: str, shards: int, held: str | None) -> int:
    with alchemy_engine(database_url).begin() as connection:
        psycopg_connection = psycopg_of(connection)
        lock_schema(psycopg_connection)
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
        _refuse_newer(connection)
        command.upgrade(alembic_config(connection), "head")
        connection.execute(
            text(
                "INSERT INTO deployment (id, shards, grown_from) VALUES (1, :shards, :shards) "
                "ON CONFLICT DO NOTHING"
            ),
            {"shards": shards},
        )
        connection.execute(text(_NOBODY_LEADS))
        layout = read_layout(psycopg_connection)
        require_shards(layout.shards, shards)
        connection.execute(text(_HOLD), {"held": held})
        require_held(psycopg_connection, held)
        ensure_partitions(psycopg_connection, layout.having_hosts)
        ensure_roles(psycopg_connection)
    log.info("database migrated", shards=layout.shards)
    return layout.shards


def _is_table_in_use(error: BaseException) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, psycopg.errors.LockNotAvailable)


def _say_whom_we_wait_for(database_url: str) -> None:
    """Most likely the one whose transaction has lasted longest."""
    with connect(database_url, "migrate") as connection:
        found = connection.execute(_LONGEST_TRANSACTION).fetchone()
    pid, name, seconds = found or (None, "nobody any more", 0.0)
    log.warning(
        "a table that is to be altered is in use; it is tried again",
        longest_transaction=name,
        pid=pid,
        seconds=round(seconds),
    )


def _refuse_newer(connection: Connection) -> None:
    found = MigrationContext.configure(connection).get_current_revision()
    scripts = ScriptDirectory(str(Path(__file__).parent))
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreMismatch(
            f"the database is of a newer version (its schema is {found}, and this version knows up "
            f"to {scripts.get_current_head()}): call that version's `freshet migrate`"
        )


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for an open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config
