"""How who splits a shard and the shard's scheduler agree, in the shard's row of `shard_splits`.

A shard is split when nobody writes it and its scheduler picks nothing of it (`growth`):

- `WAITING`: nobody wants to split it now.
- `ASKED`: somebody wants to, who renews `until` (`ask`). The scheduler, which looks now and then,
  stops picking and waits until the broker has all its requests.
- `HELD`: the scheduler has done so (`hold`). Now the shard may be split (`split_shard`).
- `SPLIT`: done, once and for all.

Whoever asks and dies lets `until` pass; the scheduler then goes on (`resume`). Times are the
server's own.

**Only who loaded a shard last speaks for it.** A scheduler that loads a shard has held nothing: it
must be asked again. It claims the shard (`take_over`), growth or not, by a fencing token that no
other loading has, and `hold` compares: what the scheduler before has said does not count any more,
nor what it says later, however long that was under way.

Each step is one statement, to be committed by itself. None but `take_over` waits for a split that
is under way: they answer False, and whoever calls them looks again later.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import psycopg

from shared.store.deployment import OLDER, StoreMismatch
from shared.store.server_time import SERVERS_TIME


class SplitState(IntEnum):
    """How far a shard is split."""

    WAITING = 0
    ASKED = 1
    HELD = 2
    SPLIT = 3


@dataclass(frozen=True, slots=True)
class Split:
    """A shard that is to be split, or has been."""

    state: SplitState
    is_current: bool
    """Whether who asked for it is there, as far as is known."""
    split_at: float | None
    """Unix seconds, by the server's clock; None: it is not split yet."""
    claim: str | None
    """The fencing token of the scheduler that has loaded it last; None: none has."""


"""Unix seconds, by the clock of the server."""


def read_splits(connection: psycopg.Connection, parents: Collection[int]) -> dict[int, Split]:
    """How far shards are split; those that are absent never grew, or came by the last growth."""
    rows = connection.execute(
        f"SELECT parent, state, until > {SERVERS_TIME}, split_at, claim FROM shard_splits "
        "LEFT JOIN shard_claims ON shard = parent WHERE parent = ANY(%s)",
        (np.array(sorted(parents), np.int16),),
    ).fetchall()
    return {
        parent: Split(SplitState(state), is_current, split_at, claim)
        for parent, state, is_current, split_at, claim in rows
    }


def without_scheduler(connection: psycopg.Connection, shards: Collection[int]) -> list[int]:
    """Those of some shards that no scheduler has ever loaded (`take_over`)."""
    rows = connection.execute(
        "SELECT shard FROM unnest(%s::int2[]) AS asked (shard) "
        "WHERE NOT EXISTS (SELECT FROM shard_claims AS made WHERE made.shard = asked.shard) "
        "ORDER BY shard",
        (np.array(sorted(shards), np.int16),),
    ).fetchall()
    return [int(shard) for (shard,) in rows]


def _step(assignments: str, condition: str) -> str:
    """A statement that changes the row of a shard where a condition holds, and nobody has it."""
    return (
        f"UPDATE shard_splits SET {assignments} WHERE parent = (SELECT parent FROM shard_splits "
        f"WHERE parent = %(parent)s AND {condition} FOR NO KEY UPDATE SKIP LOCKED)"
    )


_ASK: Final = _step(
    f"state = greatest(state, {SplitState.ASKED:d}), until = {SERVERS_TIME} + %(seconds)s",
    f"state < {SplitState.SPLIT:d}",
)
_IS_ASKED: Final = f"state = {SplitState.ASKED:d} AND until > {SERVERS_TIME}"
_HOLD: Final = _step(f"state = {SplitState.HELD:d}", _IS_ASKED)
# The claim is locked as well: nobody makes another before this is committed, and can be seen.
_HOLD_MINE: Final = f"""
UPDATE shard_splits SET state = {SplitState.HELD:d} WHERE parent = (
    SELECT parent FROM shard_splits JOIN shard_claims ON shard = parent
    WHERE parent = %(parent)s AND claim = %(claim)s AND {_IS_ASKED}
    FOR NO KEY UPDATE OF shard_splits SKIP LOCKED FOR SHARE OF shard_claims SKIP LOCKED)
"""
_CLAIM: Final = f"""
INSERT INTO shard_claims (shard, claim, since)
SELECT shard, %(claim)s, {SERVERS_TIME} FROM unnest(%(parents)s::int2[]) AS new (shard)
ORDER BY shard
ON CONFLICT (shard) DO UPDATE SET claim = excluded.claim, since = excluded.since
"""
_RESUME: Final = _step(
    f"state = {SplitState.WAITING:d}",
    f"state IN ({SplitState.ASKED:d}, {SplitState.HELD:d}) AND until <= {SERVERS_TIME}",
)


def ask(connection: psycopg.Connection, parent: int, seconds: float) -> bool:
    """Ask a shard's scheduler to stop picking, or go on asking; also once it has stopped.

    Args:
        connection: with autocommit.
        parent: the shard.
        seconds: after which who asks is taken for gone, unless this is called again.

    Returns:
        False if there is nothing to ask for: the shard is split, or is being split just now.
    """
    return connection.execute(_ASK, {"parent": parent, "seconds": seconds}).rowcount == 1


def hold(connection: psycopg.Connection, parent: int, *, claim: str | None = None) -> bool:
    """Say that nothing of a shard is picked any more, and that the broker has every request.

    Args:
        connection: with autocommit.
        parent: the shard.
        claim: by which it was loaded (`take_over`); None: no scheduler has it, nor will soon.

    Returns:
        False if nobody asks for it (any more), or another scheduler has taken it over.
    """
    statement = _HOLD if claim is None else _HOLD_MINE
    return connection.execute(statement, {"parent": parent, "claim": claim}).rowcount == 1


def resume(connection: psycopg.Connection, parent: int) -> bool:
    """Take a shard back from who asked for it and is gone; the scheduler then goes on picking.

    Returns:
        False if it is not to be had: who asked is still there, or splits the shard just now.
    """
    return connection.execute(_RESUME, {"parent": parent}).rowcount == 1


def take_over(connection: psycopg.Connection, parents: Collection[int], claim: str) -> None:
    """Note that a scheduler takes shards over, which has not stopped to pick any of them yet.

    Waits for splits that are under way.

    Args:
        connection: with autocommit: the shards are claimed before it is looked whether they are
            held, and both before they are read.
        parents: the shards.
        claim: a fencing token that no other loading has.

    Raises:
        StoreMismatch: the database is not migrated.
        psycopg.errors.LockNotAvailable: a split takes long; try again.
    """
    numbers = np.array(sorted(parents), np.int16)
    try:
        connection.execute(_CLAIM, {"parents": numbers, "claim": claim})
    except psycopg.errors.UndefinedTable as error:
        raise StoreMismatch(OLDER) from error
    connection.execute(
        f"UPDATE shard_splits SET state = {SplitState.ASKED:d} "
        f"WHERE parent = ANY(%s) AND state = {SplitState.HELD:d}",
        (numbers,),
    )
