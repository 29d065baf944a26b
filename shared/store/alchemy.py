"""SQLAlchemy's way to the database: for migrations, and what else changes tables.

Workers do without it: to load it takes as long as all else of theirs that is not mathematics.
"""

import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from shared.store.connection import CONNECT_SECONDS, MIGRATING, session_limits, transport


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
