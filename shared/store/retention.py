"""Dropping old observations a little at a time, so that no writer waits long."""

from typing import Final

from shared.store.connection import connect
from shared.store.writer import drop_observations_before

RETENTION_LOCK: Final = 0x66726573_0003
"""Advisory lock: one process at a time drops."""

LOCK_TIMEOUT: Final = "2s"
"""Dropping a partition excludes writers: it must not wait in their way for a long reader's end."""


def drop_old_observations(database_url: str, before: float) -> int:
    """Drop the oldest partition of `observations`, unless another process is about to.

    Args:
        database_url: libpq URL.
        before: clock time, Unix seconds; the partition goes if it lies wholly before it.

    Returns:
        how many were dropped: one or none.

    Raises:
        psycopg.Error: the server cannot be reached, or somebody reads for long: try again later.
    """
    with connect(database_url, "retention") as connection:
        got = connection.execute("SELECT pg_try_advisory_lock(%s)", (RETENTION_LOCK,)).fetchone()
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        connection.commit()
        return drop_observations_before(connection, before, most=1) if got and got[0] else 0
