"""Pages and hosts of which nothing is kept, but that there was something.

An estimator erases what it is told to by `page-updates`, in the transaction of the batch. What is
still in the topics would bring it back, or be set aside as about an unknown page: so a page's id, a
hash of its URL, stays with the time of its erasure until no topic has anything older.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.identity import host_id_of
from shared.store.columns import RemovedPages
from shared.store.connection import connect
from shared.store.layout import read_layout
from shared.store.page_status import NEVER
from shared.units import SECONDS_PER_DAY

KEPT_SECONDS: Final = 15 * SECONDS_PER_DAY
"""Longer than any topic keeps what could bring a page back; dead letters, which may be sent again,
are kept for 14 days."""

_DROPPED_AT_ONCE: Final = 10_000


class ErasedRows(NamedTuple):
    """Pages, or hosts, that are erased; sorted by shard and id, each once."""

    shards: NDArray[np.int16]
    ids: NDArray[np.int64]
    erased_at: NDArray[np.float64]
    """Times of the updates that said so, Unix seconds."""

    @classmethod
    def of(cls, parts: "Sequence[ErasedRows]") -> "ErasedRows":
        """Several of them, in one."""
        joined = cls(
            np.concatenate([np.empty(0, np.int16), *(part.shards for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)]),
            np.concatenate([np.empty(0), *(part.erased_at for part in parts)]),
        )
        order = np.lexsort((joined.ids, joined.shards))
        return cls(joined.shards[order], joined.ids[order], joined.erased_at[order])


class Erased(NamedTuple):
    """What was erased of a shard, as far as that still matters."""

    pages: RemovedPages
    hosts: dict[int, float]
    """Host id → when it was erased, Unix seconds."""

    @classmethod
    def nothing(cls) -> "Erased":
        """No page and no host."""
        return cls(RemovedPages.none(), {})


def erase_pages(connection: psycopg.Connection, gone: ErasedRows) -> None:
    """Erase pages, their URLs, and that nobody answered requests for them.

    Args:
        connection: with the transaction of their owner.
        gone: which, and when.
    """
    keys = gone.shards, gone.ids
    for table in ("pages", "page_urls", "unanswered_pages"):
        connection.execute(
            f"DELETE FROM {table} AS page USING unnest(%s::int2[], %s::int8[]) AS gone (shard, id) "
            "WHERE page.shard = gone.shard AND page.page_id = gone.id",
            keys,
        )
    _note(connection, "erased_pages", "page_id", gone)


def erase_hosts(connection: psycopg.Connection, gone: ErasedRows) -> None:
    """Erase hosts: their rules, and what was learned of them."""
    connection.execute(
        "DELETE FROM hosts AS host USING unnest(%s::int2[], %s::int8[]) AS gone (shard, id) "
        "WHERE host.shard = gone.shard AND host.host_id = gone.id",
        (gone.shards, gone.ids),
    )
    _note(connection, "erased_hosts", "host_id", gone)


def _note(connection: psycopg.Connection, table: str, key: str, gone: ErasedRows) -> None:
    connection.execute(
        f"INSERT INTO {table} AS known (shard, {key}, erased_at) "
        "SELECT * FROM unnest(%s::int2[], %s::int8[], %s::float8[]) AS gone (shard, id, at) "
        f"ORDER BY shard, id ON CONFLICT (shard, {key}) DO UPDATE "
        "SET erased_at = greatest(known.erased_at, excluded.erased_at)",
        gone,
    )


def read_erased(connection: psycopg.Connection, shard: int) -> Erased:
    """What was erased of a shard."""
    pages = connection.execute(
        "SELECT array_agg(page_id ORDER BY page_id), array_agg(erased_at ORDER BY page_id) "
        "FROM erased_pages WHERE shard = %s",
        (shard,),
        binary=True,
    ).fetchone()
    hosts = connection.execute(
        "SELECT host_id, erased_at FROM erased_hosts WHERE shard = %s", (shard,)
    ).fetchall()
    if pages is None or pages[0] is None:
        return Erased(RemovedPages.none(), dict(hosts))
    page_ids, erased_at = np.asarray(pages[0], np.int64), np.asarray(pages[1], np.float64)
    return Erased(RemovedPages(page_ids, erased_at), dict(hosts))


def host_erased_at(connection: psycopg.Connection, host: str) -> float:
    """When a host was last erased, Unix seconds; NEVER: it was not, or long ago."""
    row = connection.execute(
        "SELECT erased_at FROM erased_hosts WHERE shard = %s AND host_id = %s",
        (read_layout(connection).shard_of(host), host_id_of(host)),
    ).fetchone()
    return NEVER if row is None else float(row[0])


def drop_old_erasures(database_url: str, before: float) -> int:
    """Forget some of what was erased before a time, Unix seconds; how many were forgotten.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses: try again later.
    """
    dropped = 0
    with connect(database_url, "retention") as connection:
        for table in ("erased_pages", "erased_hosts"):
            dropped += connection.execute(
                f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} "
                "WHERE erased_at < %s LIMIT %s FOR UPDATE SKIP LOCKED))",
                (before, _DROPPED_AT_ONCE),
            ).rowcount
    return dropped
