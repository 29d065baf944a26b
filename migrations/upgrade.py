"""Bringing a database to the newest schema."""

from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from migrations.engine import alchemy_engine, psycopg_of
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


def migrate(database_url: str, shards: int, held: str | None = None) -> int:
    """Bring the database to the newest schema, with a partition for each shard. Idempotent.

    In a growth, shards that have no hosts yet get theirs when the shard of before is split.

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
    with alchemy_engine(database_url).begin() as connection:
        psycopg_connection = psycopg_of(connection)
        lock_schema(psycopg_connection)
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
