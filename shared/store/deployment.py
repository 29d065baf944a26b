"""Checking that the database is the one that the settings speak of."""

from typing import Final

import psycopg

UNMIGRATED: Final = "the database has no Freshet tables yet: run `freshet migrate`"
OLDER: Final = "the database is of an older version: run `freshet migrate`"


NEEDED_REVISION: Final = "0029"
"""Of the schema, by this version. Later ones have all that it has: workers of before go on while
others are upgraded."""


class StoreMismatch(Exception):
    """The database is not what the settings say; the text says how, and what to do."""


def check_deployment(connection: psycopg.Connection, shards: int, held: str | None = None) -> None:
    """Make sure at start that the database is there, and can be the one of the settings.

    Args:
        connection: without a transaction.
        shards: by the settings.
        held: those of them that it has to have, of several databases; None: it is the only one.

    Raises:
        StoreMismatch: not migrated (`require_schema`), or made for another number of shards
            (`require_shards`), or for others of them (`require_held`).
    """
    try:
        require_schema(connection)
        row = connection.execute("SELECT shards FROM deployment").fetchone()
        require_shards(row[0] if row else None, shards)
        require_held(connection, held)
    except psycopg.errors.UndefinedTable as error:
        raise StoreMismatch(UNMIGRATED) from error
    finally:
        connection.rollback()


def require_schema(connection: psycopg.Connection) -> None:
    """Refuse a schema of before, which lacks what this version reads or writes.

    Where the revision may not be read, as a version of before has granted it to nobody, what is
    missing shows when it is used.

    Args:
        connection: with autocommit, or in the caller's transaction.

    Raises:
        StoreMismatch: it is older, or there is none.
    """
    found = _revision(connection)
    if found is not None and found < NEEDED_REVISION:
        raise StoreMismatch(f"{OLDER} (its schema is {found}, and {NEEDED_REVISION} is needed)")


def require_this_schema(connection: psycopg.Connection) -> None:
    """Refuse any schema but this version's, as for who moves all that a shard has: what a later one
    has more of would stay where it was.

    Args:
        connection: with autocommit, or in the caller's transaction.

    Raises:
        StoreMismatch: it is older or newer, or there is none.
    """
    require_schema(connection)
    found = _revision(connection)
    if found is not None and found != NEEDED_REVISION:
        raise StoreMismatch(
            f"the database is of a newer version (its schema is {found}, and this version knows up "
            f"to {NEEDED_REVISION}): call that version's `freshet shards grow`"
        )


def _revision(connection: psycopg.Connection) -> str | None:
    """Of the schema; None: it may not be read. Raises StoreMismatch if there is none."""
    try:
        row = connection.execute(
            "SELECT has_table_privilege('alembic_version', 'SELECT')"
        ).fetchone()
        if row != (True,):
            return None
        row = connection.execute("SELECT max(version_num) FROM alembic_version").fetchone()
    except psycopg.errors.UndefinedTable as error:
        raise StoreMismatch(UNMIGRATED) from error
    found: str | None = row[0] if row else None
    if found is None:
        raise StoreMismatch(UNMIGRATED)
    return found


def require_held(connection: psycopg.Connection, held: str | None) -> None:
    """Refuse a database that has other shards than the settings say: none of them has two homes.

    Args:
        connection: with autocommit, or in the caller's transaction.
        held: as by `shared.contracts.databases.Database`.

    Raises:
        StoreMismatch: it has others.
    """
    try:
        row = connection.execute("SELECT shards_held FROM deployment").fetchone()
    except psycopg.errors.UndefinedColumn as error:
        raise StoreMismatch(OLDER) from error
    found = row[0] if row else None
    if found != held:
        raise StoreMismatch(
            f"the database has {_named(found)}, but by the settings it has {_named(held)}: see "
            "FRESHET_DATABASES; shards do not move from one database to another"
        )


def _named(held: str | None) -> str:
    return "all shards" if held is None else f"the shards {held}"


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
