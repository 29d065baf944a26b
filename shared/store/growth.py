"""The growth of the number of shards: how a shard's hosts are split among it and new ones.

`begin_growth` notes that there are new shards; nobody has hosts there yet. Each shard of before is
then split by itself (`split_shard`): what moves is copied first, while all go on (`copies`), and
then everything takes its place when nobody writes the shard and its scheduler picks nothing of it.
`splits` is how they agree on that.
"""

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
import psycopg

from shared.contracts.layout import MOST_SHARDS, Layout
from shared.store.connection import MIGRATING, connect
from shared.store.copies import make_copies
from shared.store.deployment import StoreMismatch, require_this_schema
from shared.store.layout import read_layout
from shared.store.moving import SplitCounts, move_rows, note_moves
from shared.store.owners import pass_on_announcing, raise_epochs
from shared.store.partitions import lock_schema, without_partitions
from shared.store.server_time import SERVERS_TIME
from shared.store.splits import SplitState
from shared.store.writer_lock import keep_imports_out


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
    with connect(database_url, "growth", limits=MIGRATING) as connection:
        lock_schema(connection)
        layout = read_layout(connection)
        if shards == layout.shards != layout.grown_from:
            return layout
        require_growth(layout, shards)
        after = layout.grown_to(shards)
        _note_growth(connection, after)
    return after


def require_growth(layout: Layout, shards: int) -> None:
    """Make sure that so many shards can come next, or have come, or come just now.

    Raises:
        GrowthRefused: they cannot.
    """
    if shards == layout.shards != layout.grown_from:
        return
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


def _note_growth(connection: psycopg.Connection, after: Layout) -> None:
    connection.execute("DELETE FROM shard_splits")
    connection.execute(
        "INSERT INTO shard_splits (parent) SELECT * FROM generate_series(0, %s)",
        (after.grown_from - 1,),
    )
    connection.execute(
        "UPDATE deployment SET shards = %s, grown_from = %s, earlier_shards = %s",
        (after.shards, after.grown_from, list(after.earlier)),
    )


def note_split_elsewhere(connection: psycopg.Connection, parents: Collection[int]) -> None:
    """Note in a database that shards are split which another one has; nothing of them is here.

    Args:
        connection: of the tables' owner, with autocommit.
        parents: of the growth that is under way.
    """
    connection.execute(
        f"UPDATE shard_splits SET state = {SplitState.SPLIT:d}, split_at = {SERVERS_TIME} "
        "WHERE parent = ANY(%s) AND split_at IS NULL",
        (np.array(sorted(parents), np.int16),),
    )


_LOCK: Final = f"""
SELECT state = {SplitState.HELD:d} AND until > {SERVERS_TIME}, state, shards, grown_from
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
        StoreMismatch: the layout is another one, or shards that must be empty are not, or another
            version has migrated the database meanwhile.
        psycopg.errors.LockNotAvailable: a commit has been under way for too long.
        psycopg.OperationalError: the server went away; whether it committed is not known.
    """
    family = layout.family_of(parent)
    with connection.transaction():
        lock_schema(connection)
        require_this_schema(connection)
        keep_imports_out(connection)
        note_moves(connection, layout, parent)
        copies = make_copies(connection, parent, without_partitions(connection, family[1:]))
        until_held()
        _require_held(connection, layout, parent)
        raise_epochs(connection, family, holder)
        counts = move_rows(connection, layout, parent, copies)
        pass_on_announcing(connection, parent, family[1:])
        _note_split(connection, parent)
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


def _note_split(connection: psycopg.Connection, parent: int) -> None:
    connection.execute(
        f"UPDATE shard_splits SET state = {SplitState.SPLIT:d}, split_at = {SERVERS_TIME} "
        "WHERE parent = %s",
        (parent,),
    )
