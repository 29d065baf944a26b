"""Reading from the database which shard has a host."""

from typing import Final

import psycopg

from shared.contracts.layout import Layout
from shared.store.connection import WORKING, Limits, connect
from shared.store.deployment import OLDER, UNMIGRATED, StoreMismatch

_LAYOUT: Final = """
SELECT shards, grown_from, earlier_shards,
       (SELECT coalesce(array_agg(parent::int4), ARRAY[]::int4[]) FROM shard_splits
        WHERE split_at IS NOT NULL)
FROM deployment
"""


def read_layout(connection: psycopg.Connection) -> Layout:
    """How the hosts are shared out among the shards, as of one moment.

    Args:
        connection: with autocommit, or in the caller's transaction.

    Raises:
        StoreMismatch: the database is not migrated.
    """
    try:
        row = connection.execute(_LAYOUT).fetchone()
    except psycopg.errors.UndefinedTable as error:
        raise StoreMismatch(UNMIGRATED) from error
    except psycopg.errors.UndefinedColumn as error:
        raise StoreMismatch(OLDER) from error
    if row is None:
        raise StoreMismatch(UNMIGRATED)
    shards, grown_from, earlier, split = row
    return Layout(shards, grown_from, frozenset(map(int, split)), tuple(map(int, earlier)))


def fetch_layout(database_url: str, role: str = "layout", limits: Limits = WORKING) -> Layout:
    """The same by a connection of its own.

    Args:
        database_url: libpq URL.
        role: who connects, as seen in `pg_stat_activity`.
        limits: of the session.

    Raises:
        StoreMismatch: the database is not migrated.
        psycopg.OperationalError: the server cannot be reached.
    """
    with connect(database_url, role, limits=limits) as connection:
        return read_layout(connection)
