"""What passes by itself: waiting, and beginning again from the database, may help."""

from typing import Final

from aiokafka.errors import KafkaError
from psycopg.errors import LockNotAvailable

from shared.runtime.kafka import may_pass
from shared.store.connection import PASSING
from shared.store.imports import StoreBusy
from shared.store.positions import Superseded

TRANSIENT: Final = (*PASSING, Superseded, StoreBusy)


def passes(error: BaseException) -> bool:
    """Whether a server is away or busy, or another process was faster."""
    return isinstance(error, TRANSIENT) or (isinstance(error, KafkaError) and may_pass(error))


def passes_at_once(error: BaseException) -> bool:
    """The same, where other shards are not to wait for one that somebody holds locked."""
    return passes(error) and not isinstance(error, LockNotAvailable)


def passes_without_database(error: BaseException) -> bool:
    """The same, where nobody is to wait for the database: others are there."""
    return isinstance(error, Superseded) or (isinstance(error, KafkaError) and may_pass(error))
