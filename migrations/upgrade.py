"""Bringing a database to the newest schema."""

from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from shared.store.connection import alchemy_engine
from shared.store.deployment import require_shards
from shared.store.roles import ensure_roles

log = structlog.get_logger(__name__)

MIGRATION_LOCK = 0x66726573_0001
"""Advisory lock: two migrations at once wait for each other."""

FILLFACTOR = 82
"""Room on every heap page for new versions of its rows, so that updates stay HOT."""


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
        require_shards(connection.scalar(text("SELECT shards FROM deployment")), shards)
        _create_partitions(connection, shards)
        ensure_roles(connection, shards)
    log.info("database migrated", shards=shards)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for an open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


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
