"""What passes by itself: waiting, and beginning again from the database, may help. And what never
does, as it is the data that is refused."""

from typing import Final

import psycopg
from aiokafka.errors import KafkaError
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from shared.runtime.kafka import may_pass
from shared.store.connection import PASSING, exceeds_limit
from shared.store.positions import Superseded
from shared.store.rights import ESTIMATOR, reason_why_not
from shared.store.writer_lock import StoreBusy

AWAY: Final = (*PASSING, StoreBusy, InsufficientPrivilege)
"""Also a right that was taken away: who ended for that would have the next one ask."""

TRANSIENT: Final = (*AWAY, Superseded)

_RAISED: Final = "P0001"


def passes(error: BaseException) -> bool:
    """Whether a server is away or busy, or has yet to give a right, or another process was
    faster."""
    is_transient = isinstance(error, TRANSIENT) and not exceeds_limit(error)
    return is_transient or (isinstance(error, KafkaError) and may_pass(error))


def passes_at_once(error: BaseException) -> bool:
    """The same, where other shards are not to wait for one that somebody holds locked."""
    return passes(error) and not isinstance(error, LockNotAvailable)


def passes_without_database(error: BaseException) -> bool:
    """The same, where nobody is to wait for the database: others are there."""
    return isinstance(error, Superseded) or (isinstance(error, KafkaError) and may_pass(error))


def reason(error: BaseException) -> str:
    """What to say of an error, in a line; of a missing right, how to give it."""
    return reason_why_not(error, ESTIMATOR)


def refuses_data(error: Exception) -> bool:
    """Whether PostgreSQL, or the client for it, refuses what it was given, and would so again.

    Not so if the server is away or busy, and not if its tables or rights are other than expected:
    then no message is at fault.
    """
    if isinstance(error, psycopg.Error):
        # A smaller value would not exceed a limit of the server's.
        return (
            isinstance(error, psycopg.DataError | psycopg.IntegrityError)
            or exceeds_limit(error)
            or error.sqlstate == _RAISED
        )
    return isinstance(error, ValueError | TypeError | ArithmeticError)
