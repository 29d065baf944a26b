"""Dropping old observations a little at a time, so that no writer waits long; room for new ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from shared.store.connection import connect
from shared.store.writer import drop_observations_before, ensure_observation_partition
from shared.units import SECONDS_PER_DAY

RETENTION_LOCK: Final = 0x66726573_0003
"""Advisory lock: one process at a time drops, or makes room."""

LOCK_TIMEOUT: Final = "2s"
"""Dropping or making a partition excludes writers: it must not wait in their way for the end of a
long reader."""

AHEAD_SECONDS: Final = 7 * SECONDS_PER_DAY
"""A partition is there so long before it is needed, if nobody reads all the time."""


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
    with _alone(database_url) as connection:
        return 0 if connection is None else drop_observations_before(connection, before, most=1)


def make_room(database_url: str, now: float) -> None:
    """Make the next partition of `observations` in time, unless another process is about to.

    Who makes one waits for all who read the table, as backups do for hours: not at the moment at
    which it is needed.

    Args:
        database_url: libpq URL.
        now: clock time, Unix seconds.

    Raises:
        psycopg.Error: the server cannot be reached, or somebody reads for long: try again later.
    """
    with _alone(database_url) as connection:
        if connection is not None:
            ensure_observation_partition(connection, now + AHEAD_SECONDS)


@contextmanager
def _alone(database_url: str) -> Iterator[psycopg.Connection | None]:
    """A connection that waits for a lock only for a moment; None: another process has one."""
    with connect(database_url, "retention") as connection:
        got = connection.execute("SELECT pg_try_advisory_lock(%s)", (RETENTION_LOCK,)).fetchone()
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        connection.commit()
        if not (got and got[0]):
            yield None
            return
        yield connection
        # Not where it fails: then the connection ends, and with it the lock, a moment later.
        connection.execute("SELECT pg_advisory_unlock(%s)", (RETENTION_LOCK,))
