"""Who leads among the coordinators: one row that the leader keeps touching.

Every leadership has an epoch, higher than all before it, and no other has the same: not even if the
server forgets a takeover, as a standby does that is promoted without the last commits. It is not
lower than the server's clock in milliseconds, and a takeover is durable before anybody acts on it.
To renew takes the epoch and the name.

Nobody's clock is compared with another's: a leader counts `beat` up, and the others see by their
own clocks for how long it has stood still.
"""

from typing import NamedTuple

import psycopg

from shared.store.connection import session_settings, transport
from shared.store.server_time import SERVERS_TIME

ROLE = "coordinator"

ROW_MISSING = "coordinator_lease has no row, so nobody can lead: run `freshet migrate`"


class LeaseMissing(Exception):
    """The row is not there, as after a restore of the schema alone: nobody can take the lease."""

    def __init__(self) -> None:
        super().__init__(ROW_MISSING)


_SETTINGS = {"statement_timeout": "2s", "synchronous_commit": "off"}


class Lease(NamedTuple):
    """The row, as it stood when it was read."""

    epoch: int
    """0: nobody has ever led."""
    holder: str
    """Name of the leader; empty: it has given the lease back."""
    beat: int
    is_connected: bool
    """Whether the leader's own connection to the database is still there."""


_READ = """
SELECT epoch, holder, beat, EXISTS (
    SELECT 1 FROM pg_stat_activity AS a
    WHERE a.pid = l.session_pid AND a.backend_start = l.session_start
)
FROM coordinator_lease AS l
"""

_SESSION = (
    "session_pid = pg_backend_pid(), session_start = "
    "(SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())"
)


_TAKE = f"""
UPDATE coordinator_lease
SET epoch = greatest(
        greatest(epoch, %(above)s) + 1,
        floor(1000 * {SERVERS_TIME})::int8),
    holder = %(holder)s, beat = 0, {_SESSION}
WHERE epoch = %(epoch)s AND beat = %(beat)s AND holder = %(seen)s
RETURNING epoch
"""


async def connect_lease(database_url: str) -> psycopg.AsyncConnection:
    """A connection for the functions below; the leader's stays open as long as it leads.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    connection = await psycopg.AsyncConnection.connect(
        database_url,
        autocommit=True,
        application_name=f"freshet-{ROLE}-lease",
        connect_timeout=2,
        **transport(database_url),
    )
    try:
        await connection.execute(session_settings(_SETTINGS))
    except BaseException:
        await connection.close()
        raise
    return connection


async def read_lease(connection: psycopg.AsyncConnection) -> Lease:
    """The lease as it stands.

    Raises:
        psycopg.Error: the server does not answer, or the table is not there.
        LeaseMissing: the table has no row.
    """
    row = await (await connection.execute(_READ)).fetchone()
    if row is None:
        raise LeaseMissing
    return Lease(*row)


async def take_lease(
    connection: psycopg.AsyncConnection, holder: str, seen: Lease, above: int
) -> int | None:
    """Take the lease, if it still stands as it was seen.

    Args:
        connection: ours.
        holder: our name.
        seen: the lease as it was read last.
        above: an epoch that is known from elsewhere; ours is higher than it too. (A database that
            was restored from a backup has forgotten the last ones.)

    Returns:
        the epoch of our leadership; None: somebody was faster, or the leader lives.

    Raises:
        psycopg.Error: the server does not answer.
    """
    async with connection.transaction():
        await connection.execute("SET LOCAL synchronous_commit = on")
        cursor = await connection.execute(
            _TAKE,
            {
                "above": above,
                "holder": holder,
                "epoch": seen.epoch,
                "beat": seen.beat,
                "seen": seen.holder,
            },
        )
        row = await cursor.fetchone()
    return int(row[0]) if row is not None else None


async def renew_lease(connection: psycopg.AsyncConnection, epoch: int, holder: str) -> bool:
    """Show that the leader of an epoch lives.

    Args:
        connection: ours.
        epoch: of our leadership.
        holder: our name.

    Returns:
        whether it still leads.

    Raises:
        psycopg.Error: the server does not answer.
    """
    cursor = await connection.execute(
        f"UPDATE coordinator_lease SET beat = beat + 1, {_SESSION} "
        "WHERE epoch = %s AND holder = %s",
        (epoch, holder),
    )
    return cursor.rowcount == 1


async def release_lease(connection: psycopg.AsyncConnection, epoch: int, holder: str) -> None:
    """Give the lease back, so that another coordinator leads at once.

    Raises:
        psycopg.Error: the server does not answer.
    """
    await connection.execute(
        "UPDATE coordinator_lease SET holder = '' WHERE epoch = %s AND holder = %s",
        (epoch, holder),
    )
