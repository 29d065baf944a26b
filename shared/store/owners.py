"""Who writes a shard: a fencing token, which every commit compares.

An estimator that is given a shard raises the shard's epoch, in a transaction of its own and before
it reads the shard. From then on nobody who read the shard earlier can commit anything about it,
whatever topic a batch is about: of two processes that both believe to own a shard, only the one
that knows all that was written ever writes.

**Epochs never come again.** A new one is higher than the last, and not lower than the server's
clock in milliseconds: a standby that was promoted without the last commits, or a database that was
restored from a backup, goes on above the epochs that it has forgotten. Should two owners have
drawn the same number all the same, the holder's name tells them apart.

**What is announced was committed.** An owner announces on `page-parameters` and `host-parameters`
what it has committed, with its epoch, and each commit notes which pages and hosts it is about to
announce. Its announcements are acknowledged before its next commit. So whoever loads a shard finds
noted what its predecessor may not have announced any more, and announces it again in its own
epoch, with the values of the database. Schedulers leave out what has an older epoch than they have
seen on the same topic, or than that of the shard as they loaded it: what a predecessor sends that
was asleep meanwhile. They never see a value that the database did not have.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.positions import Superseded
from shared.store.server_time import SERVERS_TIME

NO_OWNER: Final = 0
"""The epoch of a shard that nobody has owned yet."""

_IDS: Final = np.dtype("<i8")

_RAISE: Final = f"""
INSERT INTO shard_owners AS owner (shard, epoch, holder, since)
SELECT new.shard, floor(1000 * now.seconds)::int8, %(holder)s, now.seconds
FROM unnest(%(shards)s::int2[]) AS new (shard),
    (SELECT {SERVERS_TIME} AS seconds) AS now
ORDER BY new.shard
ON CONFLICT (shard) DO UPDATE SET
    epoch = greatest(owner.epoch + 1, excluded.epoch),
    holder = excluded.holder,
    since = excluded.since
RETURNING shard, epoch
"""


class Owner(NamedTuple):
    """Who writes a shard."""

    epoch: int
    holder: str

    def require(self, found: "Owner", shard: int) -> None:
        """Make sure that the owner who was found is this one.

        Raises:
            Superseded: it is another.
        """
        if found != self:
            raise Superseded(
                f"shard {shard} has another owner: {found.holder}, since epoch {found.epoch}"
            )


class Announcing(NamedTuple):
    """What a commit's announcements are about."""

    page_ids: NDArray[np.int64]
    host_ids: NDArray[np.int64]

    @classmethod
    def nothing(cls) -> "Announcing":
        """No page and no host."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))


def raise_epochs(
    connection: psycopg.Connection, shards: Collection[int], holder: str
) -> dict[int, int]:
    """Make shards ours.

    Waits for commits of the owners before that are under way.

    Args:
        connection: with a transaction that does nothing else.
        shards: which.
        holder: our name, which no other process has.

    Returns:
        shard → the epoch of our ownership.

    Raises:
        psycopg.errors.LockNotAvailable: a commit has been under way for too long.
    """
    numbers = np.array(sorted(shards), np.int16)
    return dict(connection.execute(_RAISE, {"shards": numbers, "holder": holder}).fetchall())


def require_ownership(
    connection: psycopg.Connection, owned: Mapping[int, int], holder: str
) -> None:
    """Make sure that shards are still ours, until the end of the transaction.

    The first statement of a writer's transaction that locks anything.

    Args:
        connection: with the transaction that holds the effects.
        owned: shard → the epoch of our ownership.
        holder: our name.

    Raises:
        Superseded: one is another's.
    """
    rows = connection.execute(
        "SELECT shard, epoch, holder FROM shard_owners WHERE shard = ANY(%s) "
        "ORDER BY shard FOR NO KEY UPDATE",
        (np.array(sorted(owned), np.int16),),
    ).fetchall()
    found = {shard: (epoch, name) for shard, epoch, name in rows}
    lost = [shard for shard in sorted(owned) if found.get(shard) != (owned[shard], holder)]
    if lost:
        epoch, name = found.get(lost[0], (NO_OWNER, "nobody"))
        raise Superseded(
            f"{len(lost)} of {len(owned)} shards have another owner: shard {lost[0]} is {name}'s "
            f"since epoch {epoch}",
            lost,
        )


def read_epochs(
    connection: psycopg.Connection, shards: Collection[int]
) -> dict[int, tuple[int, str]]:
    """Shard → epoch and holder, of those that ever had an owner."""
    rows = connection.execute(
        "SELECT shard, epoch, holder FROM shard_owners WHERE shard = ANY(%s)",
        (np.array(sorted(shards), np.int16),),
    ).fetchall()
    return {shard: (epoch, holder) for shard, epoch, holder in rows}


def note_announcing(connection: psycopg.Connection, announcing: Mapping[int, Announcing]) -> None:
    """Note what is announced once the transaction is committed, in place of what was before.

    A shard of which nothing is announced keeps its note: to announce something again does no harm.
    """
    if not announcing:
        return
    shards = sorted(announcing)
    connection.execute(
        "UPDATE shard_owners AS owner SET announcing_pages = new.pages, "
        "announcing_hosts = new.hosts "
        "FROM unnest(%s::int2[], %s::bytea[], %s::bytea[]) AS new (shard, pages, hosts) "
        "WHERE owner.shard = new.shard",
        (
            np.array(shards, np.int16),
            [packed_ids(announcing[shard].page_ids) for shard in shards],
            [packed_ids(announcing[shard].host_ids) for shard in shards],
        ),
    )


def pass_on_announcing(
    connection: psycopg.Connection, parent: int, children: Collection[int]
) -> None:
    """Note for shards, whose rows are there, what is noted for one whose hosts they get.

    Ids of pages and hosts that have gone elsewhere do no harm: they are not found.
    """
    connection.execute(
        "UPDATE shard_owners AS child SET "
        "announcing_pages = child.announcing_pages || parent.announcing_pages, "
        "announcing_hosts = child.announcing_hosts || parent.announcing_hosts "
        "FROM shard_owners AS parent WHERE parent.shard = %s AND child.shard = ANY(%s)",
        (parent, np.array(sorted(children), np.int16)),
    )


def read_owner(connection: psycopg.Connection, shard: int) -> tuple[int, Announcing]:
    """The epoch of a shard, and what its last commit was about to announce."""
    row = connection.execute(
        "SELECT epoch, announcing_pages, announcing_hosts FROM shard_owners WHERE shard = %s",
        (shard,),
    ).fetchone()
    if row is None:
        return NO_OWNER, Announcing.nothing()
    return int(row[0]), Announcing(ids_of(row[1]), ids_of(row[2]))


def ids_of(packed: bytes) -> NDArray[np.int64]:
    """Ids out of their packed form."""
    return np.frombuffer(packed, _IDS).astype(np.int64)


def packed_ids(ids: NDArray[np.int64]) -> bytes:
    """Ids as little-endian bytes."""
    return ids.astype(_IDS).tobytes()
