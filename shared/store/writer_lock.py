"""Who may write pages: estimators together, or one import alone, as estimators cache the pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

WRITER_LOCK: Final = 0x66726573_0002
"""Advisory lock: estimators share it, an import has it alone."""

_IMPORTING: Final = "an import of pages is under way: waiting for its end"

_PATIENCE: Final = "SET LOCAL lock_timeout = '1s'"
"""A connection that was closed is gone at the server by then."""


class StoreBusy(Exception):
    """An import excludes estimators and splits of shards; the text says who waits for whom."""


def share_writer_lock(connection: psycopg.Connection) -> None:
    """Keep imports out for as long as this connection lasts.

    Raises:
        StoreBusy: an import is under way.
    """
    got = connection.execute("SELECT pg_try_advisory_lock_shared(%s)", (WRITER_LOCK,)).fetchone()
    connection.commit()
    if not (got and got[0]):
        raise StoreBusy(_IMPORTING)


def keep_imports_out(connection: psycopg.Connection) -> None:
    """The same until the end of the transaction.

    Raises:
        StoreBusy: an import is under way.
    """
    got = connection.execute(
        "SELECT pg_try_advisory_xact_lock_shared(%s)", (WRITER_LOCK,)
    ).fetchone()
    if not (got and got[0]):
        raise StoreBusy(_IMPORTING)


@contextmanager
def writing_alone(connection: psycopg.Connection) -> Iterator[None]:
    """Keep estimators, splits and other imports out.

    A server notices only some time after it that a connection has ended: whoever comes as soon as
    the workers are stopped waits a moment for that, and the lock is given back at the end.

    Raises:
        StoreBusy: one of them is connected.
    """
    try:
        connection.execute(_PATIENCE)
        connection.execute("SELECT pg_advisory_lock(%s)", (WRITER_LOCK,))
        connection.commit()
    except psycopg.errors.LockNotAvailable as error:
        connection.rollback()
        raise StoreBusy(
            "an estimator works on this database and would not see pages that are added "
            "behind its back: send them as page-updates, or stop the workers first"
        ) from error
    yield
    # Not where it fails: then the connection ends, and with it the lock.
    connection.execute("SELECT pg_advisory_unlock(%s)", (WRITER_LOCK,))
    connection.commit()
