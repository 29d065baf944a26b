"""Copies of the pages that a split moves, made while their shard is still written and picked.

They belong to the transaction of the split, so nobody else sees them before they are the pages
themselves, and nothing is left of them where it comes to nothing. Rows are copied first and get
their keys afterwards, which costs half of what moving them one by one does. Once the shard is held,
only what changed meanwhile is copied again: rows that were written by transactions which had not
ended when the copying began.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.deployment import StoreMismatch
from shared.store.partitions import add_keys, attach, make_apart

_TABLES: Final = ("pages", "page_urls")

_CHANGED: Final = "age({table}.xmin) <= age(%(since)s::text::xid)"
"""Rows that were written by a transaction which had not ended at some time. Numbers of transactions
come round: a few rows that are very old may be taken for changed ones."""


@dataclass(slots=True)
class Copies:
    """What is copied of a shard's pages."""

    since: str
    """The oldest transaction that had not ended when the copying began."""
    pages: dict[int, int]
    """Shard that they go to → how many."""


def make_copies(connection: psycopg.Connection, parent: int, shards: list[int]) -> Copies:
    """Copy a shard's pages that go to others, which have no partitions yet.

    Args:
        connection: with the transaction of the split, in which `host_moves` is there.
        parent: the shard.
        shards: the others.
    """
    row = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text").fetchone()
    copies = Copies(row[0] if row else "", {})
    for shard in shards:
        make_apart(connection, "pages", shard)
        copies.pages[shard] = connection.execute(
            f"INSERT INTO pages_{shard} ({_names(connection, 'pages')}) "
            f"SELECT {_values(connection, 'pages', shard)} FROM pages_{parent} AS pages "
            "JOIN host_moves AS moved USING (host_id) WHERE moved.shard = %s",
            (shard,),
        ).rowcount
        add_keys(connection, "pages", shard)
        make_apart(connection, "page_urls", shard)
        connection.execute(_copy_urls(connection, parent, shard))
        add_keys(connection, "page_urls", shard)
    return copies


def _copy_urls(connection: psycopg.Connection, parent: int, shard: int) -> str:
    return (
        f"INSERT INTO page_urls_{shard} ({_names(connection, 'page_urls')}) "
        f"SELECT {_values(connection, 'page_urls', shard)} FROM page_urls_{parent} AS page_urls "
        f"JOIN pages_{shard} AS page USING (page_id)"
    )


def _columns(connection: psycopg.Connection, table: str) -> list[str]:
    rows = connection.execute(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attname <> 'shard' ORDER BY attnum",
        (table,),
    ).fetchall()
    return [str(name) for (name,) in rows]


def _names(connection: psycopg.Connection, table: str) -> str:
    return ", ".join(["shard", *_columns(connection, table)])


def _values(connection: psycopg.Connection, table: str, shard: int) -> str:
    """What becomes of a row of a table in another shard."""
    return ", ".join([str(shard), *(f"{table}.{name}" for name in _columns(connection, table))])


def put_in_place(connection: psycopg.Connection, parent: int, copies: Copies) -> int:
    """Let the copies be the pages, of a shard that nobody writes any more.

    Args:
        connection: with the transaction, in which `host_moves` has all hosts.
        parent: the shard.
        copies: of its pages; they are brought up to date first.

    Returns:
        how many pages went to other shards.

    Raises:
        StoreMismatch: somebody writes the shard all the same.
    """
    shards = np.array(sorted(copies.pages), np.int16)
    if not shards.size:
        return 0
    _bring_up_to_date(connection, parent, copies)
    moved = connection.execute(
        f"DELETE FROM pages_{parent} AS page USING host_moves AS moved "
        "WHERE page.host_id = moved.host_id AND moved.shard = ANY(%s)",
        (shards,),
    ).rowcount
    if moved != sum(copies.pages.values()):
        raise StoreMismatch(
            f"pages of shard {parent} came or went while it was held: somebody who is no estimator "
            "writes pages; split it again"
        )
    # To look for the few that stay is less work than to look for those that go.
    connection.execute(
        f"DELETE FROM page_urls_{parent} AS url WHERE NOT EXISTS "
        f"(SELECT FROM pages_{parent} AS page WHERE page.page_id = url.page_id)"
    )
    for shard in copies.pages:
        for table in _TABLES:
            attach(connection, table, shard, parent)
    return moved


def _bring_up_to_date(connection: psycopg.Connection, parent: int, copies: Copies) -> None:
    """Copy anew what was written since, and drop what is not there any more."""
    since = {"since": copies.since}
    urls = connection.execute(
        f"SELECT array_agg(page_id) FROM page_urls_{parent} AS page_urls "
        f"WHERE {_CHANGED.format(table='page_urls')}",
        since,
        binary=True,
    ).fetchone()
    named = np.asarray(urls[0] if urls and urls[0] is not None else [], np.int64)
    rows = connection.execute(
        f"SELECT moved.shard, count(*), array_agg(page_id) FILTER "
        f"(WHERE {_CHANGED.format(table='pages')}) "
        f"FROM pages_{parent} AS pages JOIN host_moves AS moved USING (host_id) "
        "GROUP BY moved.shard",
        since,
        binary=True,
    ).fetchall()
    found = {shard: (count, changed) for shard, count, changed in rows}
    for shard in copies.pages:
        count, changed = found.get(shard, (0, None))
        ids = np.union1d(named, np.asarray([] if changed is None else changed, np.int64))
        if ids.size:
            copies.pages[shard] += _copy_again(connection, parent, shard, ids)
        if copies.pages[shard] != count:
            copies.pages[shard] -= _drop_vanished(connection, parent, shard)


def _copy_again(
    connection: psycopg.Connection, parent: int, shard: int, ids: NDArray[np.int64]
) -> int:
    """Copy some pages anew, those of them that go to a shard; how many more it has now."""
    picked = {"ids": ids, "shard": shard, "parent": parent}
    dropped = {
        table: connection.execute(
            f"DELETE FROM {table}_{shard} WHERE shard = %(shard)s AND page_id = ANY(%(ids)s)",
            picked,
        ).rowcount
        for table in _TABLES
    }
    added = connection.execute(
        f"INSERT INTO pages_{shard} ({_names(connection, 'pages')}) "
        f"SELECT {_values(connection, 'pages', shard)} FROM pages_{parent} AS pages "
        "JOIN host_moves AS moved USING (host_id) WHERE moved.shard = %(shard)s "
        "AND pages.shard = %(parent)s AND page_id = ANY(%(ids)s)",
        picked,
    ).rowcount
    connection.execute(
        f"{_copy_urls(connection, parent, shard)} "
        "WHERE page_urls.shard = %(parent)s AND page_id = ANY(%(ids)s)",
        picked,
    )
    return added - dropped["pages"]


def _drop_vanished(connection: psycopg.Connection, parent: int, shard: int) -> int:
    """Drop what is copied of pages that are not there any more; how many that were."""
    dropped = connection.execute(
        f"DELETE FROM pages_{shard} AS copy WHERE NOT EXISTS "
        f"(SELECT FROM pages_{parent} AS page WHERE page.page_id = copy.page_id)"
    ).rowcount
    connection.execute(
        f"DELETE FROM page_urls_{shard} AS copy WHERE NOT EXISTS "
        f"(SELECT FROM pages_{shard} AS page WHERE page.page_id = copy.page_id)"
    )
    return dropped
