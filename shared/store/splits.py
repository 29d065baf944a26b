"""The growth of the number of shards: how a shard's hosts are split among it and new ones.

`begin_growth` notes that there are new shards; nobody has hosts there yet. Each shard of before is
then split by itself: what moves is copied first, while all go on (`copies`), and then everything
takes its place when nobody writes the shard and its scheduler picks nothing of it. They agree on
that in the shard's row of `shard_splits`:

- `WAITING`: nobody wants to split it now.
- `ASKED`: somebody wants to, who renews `until` (`ask`). The scheduler, which looks now and then,
  stops picking and waits until the broker has all its requests.
- `HELD`: the scheduler has done so (`hold`). Now the shard may be split (`split_shard`).
- `SPLIT`: done, once and for all.

Whoever asks and dies lets `until` pass; the scheduler then goes on (`resume`). A scheduler that
loads a shard has held nothing: it must be asked again (`take_over`). Times are the server's own.

Each step is one statement, to be committed by itself. None but `take_over` waits for a split that
is under way: they answer False, and whoever calls them looks again later.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import psycopg
from sqlalchemy import Connection, text

from shared.contracts.layout import MOST_SHARDS, Layout
from shared.store.alchemy import alchemy_engine
from shared.store.copies import make_copies
from shared.store.deployment import StoreMismatch
from shared.store.imports import keep_imports_out
from shared.store.layout import layout_in
from shared.store.moving import SplitCounts, move_rows, note_moves
from shared.store.owners import pass_on_announcing, raise_epochs
from shared.store.partitions import MIGRATION_LOCK, lock_schema, without_partitions


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


class GrowthRefused(StoreMismatch):
    """The number of shards cannot become what is wanted; the text says why."""


class NotHeld(Exception):
    """Nobody has stopped the picking of a shard, or not for long enough: it is not split."""


def begin_growth(database_url: str, shards: int) -> Layout:
    """Note that there are new shards, and that those of before are to be split. Idempotent.

    Workers go on meanwhile; new shards have no hosts yet.

    Args:
        database_url: libpq URL, of the tables' owner.
        shards: how many there are to be: a multiple of how many there are.

    Returns:
        how the hosts are shared out now; also of a growth that is under way, or done, already.

    Raises:
        GrowthRefused: no growth from the present number, or another one is under way.
        StoreMismatch: the database is not migrated.
        psycopg.OperationalError: the server cannot be reached.
    """
    with alchemy_engine(database_url).begin() as connection:
        lock_schema(connection)
        layout = layout_in(connection)
        if shards == layout.shards != layout.grown_from:
            return layout
        _require_growth(layout, shards)
        _note_growth(connection, layout.shards, shards)
    return Layout(shards, layout.shards, frozenset())


def _require_growth(layout: Layout, shards: int) -> None:
    """Raises `GrowthRefused` where so many shards cannot come next."""
    if layout.is_growing:
        raise GrowthRefused(
            f"a growth from {layout.grown_from} to {layout.shards} shards is under way: let "
            f"`freshet shards grow {layout.shards}` end first"
        )
    if shards <= layout.shards or shards % layout.shards:
        raise GrowthRefused(
            f"there are {layout.shards} shards, and only a multiple can come of them "
            f"({2 * layout.shards}, {3 * layout.shards}, …), not {shards}"
        )
    if shards > MOST_SHARDS:
        raise GrowthRefused(f"{shards} shards are more than the {MOST_SHARDS} that there can be")


def _note_growth(connection: Connection, before: int, after: int) -> None:
    connection.execute(text("DELETE FROM shard_splits"))
    connection.execute(
        text("INSERT INTO shard_splits (parent) SELECT * FROM generate_series(0, :last)"),
        {"last": before - 1},
    )
    connection.execute(
        text("UPDATE deployment SET shards = :after, grown_from = :before"),
        {"after": after, "before": before},
    )


_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"


def read_splits(connection: psycopg.Connection, parents: Collection[int]) -> dict[int, Split]:
    """How far shards are split; those that are absent never grew, or came by the last growth."""
    rows = connection.execute(
        f"SELECT parent, state, until > {_NOW}, split_at FROM shard_splits WHERE parent = ANY(%s)",
        (np.array(sorted(parents), np.int16),),
    ).fetchall()
    return {
        parent: Split(SplitState(state), is_current, split_at)
        for parent, state, is_current, split_at in rows
    }


def _step(assignments: str, condition: str) -> str:
    """A statement that changes the row of a shard where a condition holds, and nobody has it."""
    return (
        f"UPDATE shard_splits SET {assignments} WHERE parent = (SELECT parent FROM shard_splits "
        f"WHERE parent = %(parent)s AND {condition} FOR NO KEY UPDATE SKIP LOCKED)"
    )


_ASK: Final = _step(
    f"state = greatest(state, {SplitState.ASKED:d}), until = {_NOW} + %(seconds)s",
    f"state < {SplitState.SPLIT:d}",
)
_HOLD: Final = _step(
    f"state = {SplitState.HELD:d}", f"state = {SplitState.ASKED:d} AND until > {_NOW}"
)
_RESUME: Final = _step(
    f"state = {SplitState.WAITING:d}",
    f"state IN ({SplitState.ASKED:d}, {SplitState.HELD:d}) AND until <= {_NOW}",
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


def hold(connection: psycopg.Connection, parent: int) -> bool:
    """Say that nothing of a shard is picked any more, and that the broker has every request.

    Returns:
        False if nobody asks for it (any more): the scheduler may as well go on.
    """
    return connection.execute(_HOLD, {"parent": parent}).rowcount == 1


def resume(connection: psycopg.Connection, parent: int) -> bool:
    """Take a shard back from who asked for it and is gone; the scheduler then goes on picking.

    Returns:
        False if it is not to be had: who asked is still there, or splits the shard just now.
    """
    return connection.execute(_RESUME, {"parent": parent}).rowcount == 1


def take_over(connection: psycopg.Connection, parents: Collection[int]) -> None:
    """Note that a scheduler takes shards over, which has not stopped to pick any of them yet.

    Waits for splits that are under way. To be committed before the shards are read.

    Raises:
        psycopg.errors.LockNotAvailable: a split takes long; try again.
    """
    connection.execute(
        f"UPDATE shard_splits SET state = {SplitState.ASKED:d} "
        f"WHERE parent = ANY(%s) AND state = {SplitState.HELD:d}",
        (np.array(sorted(parents), np.int16),),
    )


_LOCK: Final = f"""
SELECT state = {SplitState.HELD:d} AND until > {_NOW}, state, shards, grown_from
FROM shard_splits, deployment WHERE parent = %s FOR UPDATE OF shard_splits
"""


def split_shard(
    connection: psycopg.Connection,
    layout: Layout,
    parent: int,
    holder: str,
    until_held: Callable[[], None] = lambda: None,
) -> SplitCounts:
    """Split a shard: its hosts go where the new number of shards has them.

    One transaction, all of it or nothing: what is copied before the shard is held is gone if it is
    not split then. Owners of before, of the shard and of those that its hosts go to, can commit
    nothing any more. What crawls found follows later (`moving.move_observations`).

    Args:
        connection: of the tables' owner, without a transaction.
        layout: by `begin_growth`.
        parent: the shard.
        holder: name of this process, which no other has.
        until_held: called once what moves is copied: sees to it that the shard is held, by another
            connection. While it waits it has to use this one now and then, as the server gives up
            who says nothing in a transaction.

    Returns:
        what went to other shards.

    Raises:
        NotHeld: its scheduler has not stopped, or was not asked again in time; or it is split.
        StoreBusy: an import is under way.
        StoreMismatch: the layout is another one, or shards that must be empty are not.
        psycopg.errors.LockNotAvailable: a commit has been under way for too long.
        psycopg.OperationalError: the server went away; whether it committed is not known.
    """
    family = layout.family_of(parent)
    with connection.transaction():
        # Each statement is to see what others have committed before it.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        keep_imports_out(connection)
        note_moves(connection, layout, parent)
        copies = make_copies(connection, parent, without_partitions(connection, family[1:]))
        until_held()
        _require_held(connection, layout, parent)
        raise_epochs(connection, family, holder)
        counts = move_rows(connection, layout, parent, copies)
        pass_on_announcing(connection, parent, family[1:])
        connection.execute(
            f"UPDATE shard_splits SET state = {SplitState.SPLIT:d}, split_at = {_NOW} "
            "WHERE parent = %s",
            (parent,),
        )
    return counts


def _require_held(connection: psycopg.Connection, layout: Layout, parent: int) -> None:
    """Lock a shard's row until the end of the transaction; raises `NotHeld`, `StoreMismatch`."""
    row = connection.execute(_LOCK, (parent,)).fetchone()
    if row is None or (row[2], row[3]) != (layout.shards, layout.grown_from):
        raise StoreMismatch(f"shard {parent} is none that is split from {layout}")
    if not row[0]:
        raise NotHeld(
            f"shard {parent} is {SplitState(row[1]).name.lower()}, or was asked for too long ago"
        )
