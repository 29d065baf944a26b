"""Connections to PostgreSQL."""

import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from shared.store.binary import register_arrays

_WRITER_SETTINGS = (
    # A 20,000-row update from arrays flips to a hash join over the whole table at the default
    # costs: 4.9 s instead of 0.2 s. The keys come sorted, and the pages are mostly cached.
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    # Without statistics a small table looks best read as a whole, once for every row to update.
    "SET enable_seqscan = off",
    "SET random_page_cost = 1.1",
    "SET jit = off",
)


def connect(database_url: str, role: str, *, autocommit: bool = False) -> psycopg.Connection:
    """A connection that sends and receives numpy arrays in PostgreSQL's binary form.

    Args:
        database_url: libpq URL.
        role: who connects, as seen in `pg_stat_activity`.
        autocommit: no transaction unless one is begun.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    connection = psycopg.connect(
        database_url,
        autocommit=autocommit,
        application_name=f"freshet-{role}",
        connect_timeout=10,
    )
    register_arrays(connection)
    return connection


def connect_writer(database_url: str, role: str) -> psycopg.Connection:
    """A connection set up for bulk updates by key (see `connect`)."""
    connection = connect(database_url, role)
    for statement in _WRITER_SETTINGS:
        connection.execute(statement)
    connection.commit()
    return connection


def alchemy_engine(database_url: str) -> Engine:
    """An SQLAlchemy engine on the same libpq URL, for Alembic; it keeps no connection open."""
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(database_url, application_name="freshet-migrate"),
        poolclass=NullPool,
    )
