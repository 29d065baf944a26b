"""Checking that the database is the one that the settings speak of."""

import psycopg


class StoreMismatch(Exception):
    """The database is not what the settings say; the text says how, and what to do."""


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
    require_shards(row[0] if row else None, shards)


def require_shards(found: int | None, wanted: int) -> None:
    """Refuse a database that was made for another number of shards.

    Args:
        found: in the database; None: it has no tables.
        wanted: by the settings.

    Raises:
        StoreMismatch: they differ.
    """
    if found is None:
        raise StoreMismatch("the database has no Freshet tables yet: run `freshet migrate`")
    if found != wanted:
        raise StoreMismatch(
            f"the database was made for {found} shards, but the settings say {wanted}: set "
            f"FRESHET_PARTITIONS={found}, or use another database; the number never changes"
        )
