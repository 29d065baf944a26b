"""SQLAlchemy's way to the database, which Alembic goes.

All else does without it: to load it takes as long as all of a worker that is not mathematics.
"""

import psycopg
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from shared.store.connection import MIGRATING, connect


def alchemy_engine(database_url: str) -> Engine:
    """An SQLAlchemy engine on a libpq URL; it keeps no connection open."""

    def connection() -> psycopg.Connection:
        return connect(database_url, "migrate", limits=MIGRATING)

    return create_engine("postgresql+psycopg://", creator=connection, poolclass=NullPool)


def psycopg_of(connection: Connection) -> psycopg.Connection:
    """The connection below one of SQLAlchemy's, in the same transaction."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(f"{type(driver)} is no connection of psycopg")
    return driver
