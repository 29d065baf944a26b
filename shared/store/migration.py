"""Making and checking the database."""

from pathlib import Path

import psycopg
import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

import migrations
from shared.store.connection import alchemy_engine
from shared.store.roles import ensure_roles

log = structlog.get_logger(__name__)

MIGRATION_LOCK = 0x66726573_0001
"""Advisory lock: two migrations at once wait for each other."""

FILLFACTOR = 85
"""Room on every heap page for new versions of its rows, so that updates stay HOT."""


class StoreMismatch(Exception):
    """The database is not what the settings say; the text says how, and what to do."""


def migrate(database_url: str, shards: int) -> None:
    """Bring the database to the newest schema, with a partition for each shard. Idempotent.

    Raises:
        StoreMismatch: the database was made for another number of shards.
        psycopg.OperationalError: the server cannot be reached.
    """
    with alchemy_engine(database_url).begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        command.upgrade(alembic_config(connection), "head")
        connection.execute(
            text("INSERT INTO deployment (id, shards) VALUES (1, :shards) ON CONFLICT DO NOTHING"),
            {"shards": shards},
        )
        _require_shards(connection.scalar(text("SELECT shards FROM deployment")), shards)
        _create_partitions(connection, shards)
        ensure_roles(connection, shards)
    log.info("database migrated", shards=shards)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for an open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def check_deployment(connection: psycopg.Connection, shards: int) -> None:
    """Make sure at start that the database is there and has the configured number of shards.

    Raises:
        StoreMismatch: not migrated, or another number of shards.
    """
    try:
        row = connection.execute("SELECT shards FROM deployment").fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    finally:
        connection.rollback()
    _require_shards(row[0] if row else None, shards)


def _require_shards(found: int | None, wanted: int) -> None:
    if found is None:
        raise StoreMismatch("the database has no Freshet tables yet: run `freshet migrate`")
    if found != wanted:
        raise StoreMismatch(
            f"the database was made for {found} shards, but the settings say {wanted}: set "
            f"FRESHET_PARTITIONS={found}, or use another database; the number never changes"
        )


def _create_partitions(connection: Connection, shards: int) -> None:
    for shard in range(shards):
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS pages_{shard} PARTITION OF pages "
            f"FOR VALUES IN ({shard}) WITH (fillfactor = {FILLFACTOR})"
        )
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS page_urls_{shard} PARTITION OF page_urls "
            f"FOR VALUES IN ({shard})"
        )
