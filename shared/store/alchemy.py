"""SQLAlchemy's way to the database: for migrations, and what else changes tables.

Workers do without it: to load it takes as long as all else of theirs that is not mathematics.
"""

import psycopg
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from shared.contracts.layout import Layout
from shared.store.connection import CONNECT_SECONDS, MIGRATING, session_limits, transport
from shared.store.layout import read_layout


def alchemy_engine(database_url: str) -> Engine:
    """An SQLAlchemy engine on the same libpq URL, for Alembic; it keeps no connection open."""

    def connection() -> psycopg.Connection:
        made = psycopg.connect(
            database_url,
            application_name="freshet-migrate",
            connect_timeout=CONNECT_SECONDS,
            **transport(database_url, MIGRATING),
        )
        made.execute(session_limits(MIGRATING))
        made.commit()
        return made

    return create_engine("postgresql+psycopg://", creator=connection, poolclass=NullPool)


def layout_in(connection: Connection) -> Layout:
    """How the hosts are shared out among the shards (`layout.read_layout`)."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(f"{type(driver)} is no connection of psycopg")
    return read_layout(driver)
