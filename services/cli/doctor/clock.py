"""This machine's clock, compared with the servers'."""

import asyncio
import time

import psycopg

from shared.runtime.clock_offset import ClockOffset
from shared.runtime.findings import Finding, Level
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WallTime
from shared.store.connection import connect
from shared.store.server_time import read_time

SAFE_SECONDS = 0.2
"""Clocks that are apart by more change which slots are whose at different times."""

_ONE_TIME = "every slot of the budget is filled once, and times in messages are right"

_ASKED = 5

_REMEDY = "chronyc tracking, or timedatectl timesync-status, here and there"


def look_at_broker_clock(settings: Settings) -> Finding:
    """The offset to the broker, by whose time all workers go."""
    return asyncio.run(_look_at_broker_clock(settings))


async def _look_at_broker_clock(settings: Settings) -> Finding:
    # A time of its own: that of this command stays the machine's.
    clock = ClockOffset(settings, lambda _seconds: None, WallTime())
    await clock.start()
    await clock.stop()
    if not clock.estimate.is_known:
        return Finding(
            "risk",
            "broker's time",
            f"not known: {clock.trouble or 'the broker did not answer in time'}",
            "a broker that stamps what is written to topic clock",
            _ONE_TIME,
            "freshet topics ensure --fix; and let this Kafka user write to that topic",
        )
    offset, error = clock.machine_offset(), clock.estimate.error
    return judge_offset("broker", offset, error, _ONE_TIME, level="risk")


def look_at_database_clock(database_url: str) -> Finding:
    """The offset to the database. Nothing but what people read goes by its time.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    with connect(database_url, "doctor", autocommit=True) as connection:
        offset, error = min((_asked(connection) for _ in range(_ASKED)), key=lambda pair: pair[1])
    promise = "times in PostgreSQL's log can be compared with ours"
    return judge_offset("database", offset, error, promise, level="note")


def _asked(connection: psycopg.Connection) -> tuple[float, float]:
    """How far we are ahead, and by how much that may be wrong."""
    before = time.time()
    theirs = read_time(connection)
    after = time.time()
    return (before + after) / 2 - theirs, (after - before) / 2


def judge_offset(
    server: str, offset: float, error: float, promise: str, *, level: Level
) -> Finding:
    """What to say of a clock.

    Args:
        server: whose clock ours was compared with.
        offset: seconds that we are ahead of it.
        error: by how much that may be wrong.
        promise: what rests on it.
        level: of an offset that is too large.
    """
    side = "ahead of" if offset > 0 else "behind"
    said = f"{abs(offset):.3f} s {side} the {server}'s, ± {error:.3f} s"
    if abs(offset) - error <= SAFE_SECONDS:
        return Finding("ok", f"{server}'s time", said)
    return Finding(
        level,
        f"{server}'s time",
        said,
        f"less than {SAFE_SECONDS:g} s apart",
        promise,
        _REMEDY,
    )
