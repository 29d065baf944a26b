"""Checking that the database is the one that the settings speak of."""

from typing import Final

import psycopg

UNMIGRATED: Final = "the database has no Freshet tables yet: run `freshet migrate`"


class StoreMismatch(Exception):
    """The database is not what the settings say; the text says how, and what to do."""


def check_deployment(connection: psycopg.Connection, shards: int) -> None:
    """Make sure at start that the database is there, and can be the one of the settings.

    Raises:
        StoreMismatch: not migrated, or made for another number of shards (`require_shards`).
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

    The number grows by integer factors: who was configured before goes on.

    Args:
        found: in the database; None: it has no tables.
        wanted: by the settings.

    Raises:
        StoreMismatch: the database has another number, and has not grown from this one.
    """
    if found is None:
        raise StoreMismatch(UNMIGRATED)
    if found % wanted:
        raise StoreMismatch(
            f"the database was made for {found} shards, but the settings say {wanted}: set "
            f"FRESHET_PARTITIONS={found}, or use another database; {found} become more, a "
            "multiple, by `freshet shards grow`"
        )
