"""Copies of the pages that a split moves, made while their shard is still written and picked.

They belong to the transaction of the split, so nobody else sees them before they are the pages
themselves, and nothing is left of them where it comes to nothing. Rows are copied first and get
their keys afterwards, which costs half of what moving them one by one does. Once the shard is held,
only what changed meanwhile is copied again: rows that were written by transactions which had not
ended when the copying began. Then what is left is to delete the pages that have moved; their URLs
stay until the shard is served again (`left_urls`).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.store.deployment import StoreMismatch
from shared.store.partitions import add_keys, attach, make_apart, share

_TABLES: Final = ("pages", "page_urls")

_CHANGED: Final = "age(pages.xmin) <= age(%(since)s::text::xid)"
"""Rows that were written by a transaction which had not ended at some time. Numbers of transactions
come round: a few rows that are very old may be taken for changed ones."""


@dataclass(slots=True)
class Copies:
    """What is copied of a shard's pages."""

    since: str
    """The oldest transaction that had not ended when the copying began: its number as rows
    have theirs, without how often numbers came round."""
    pages: dict[int, int] = field(default_factory=dict)
    """Shard that they go to → how many."""
    urls: int = 0
    """How many, of all of them."""


def make_copies(connection: psycopg.Connection, parent: int, shards: list[int]) -> Copies:
    """Copy a shard's pages that go to others, which have no partitions yet.

    Args:
        connection: with the transaction of the split, in which `host_moves` is there.
        parent: the shard.
        shards: the others.
    """
    row = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text").fetchone()
    copies = Copies(row[0] if row else "")
    for shard in shards:
        make_apart(connection, "pages", shard)
        copies.pages[shard] = _copy_pages(connection, parent, shard, None)
        add_keys(connection, "pages", shard)
        make_apart(connection, "page_urls", shard)
        copies.urls += _copy_urls(connection, parent, shard, None)
        add_keys(connection, "page_urls", shard)
        for table in _TABLES:
            share(connection, table, shard, parent)
    return copies


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
    if not copies.pages:
        return 0
    _bring_up_to_date(connection, parent, copies)
    pages = connection.execute(
        f"DELETE FROM pages_{parent} AS page USING host_moves AS moved "
        "WHERE page.host_id = moved.host_id AND moved.shard = ANY(%s)",
        (np.array(sorted(copies.pages), np.int16),),
    ).rowcount
    if not pages == sum(copies.pages.values()) == copies.urls:
        raise StoreMismatch(
            f"pages of shard {parent} came or went while it was held: somebody who is no estimator "
            "writes them; let it be split again"
        )
    for shard in copies.pages:
        for table in _TABLES:
            attach(connection, table, shard)
    return pages


def _bring_up_to_date(connection: psycopg.Connection, parent: int, copies: Copies) -> None:
    """Copy anew what was written since, and drop what is not there any more.

    A URL comes and goes with its page, and never changes.
    """
    rows = connection.execute(
        f"SELECT moved.shard, count(*), array_agg(page_id) FILTER (WHERE {_CHANGED}) "
        f"FROM pages_{parent} AS pages JOIN host_moves AS moved USING (host_id) "
        "GROUP BY moved.shard",
        {"since": copies.since},
        binary=True,
    ).fetchall()
    found = {shard: (count, changed) for shard, count, changed in rows}
    for shard in copies.pages:
        count, changed = found.get(shard, (0, None))
        if changed is not None:
            _copy_again(connection, parent, shard, copies, changed)
        if copies.pages[shard] != count:
            _drop_vanished(connection, parent, shard, copies)


def _copy_again(
    connection: psycopg.Connection, parent: int, shard: int, copies: Copies, ids: NDArray[np.int64]
) -> None:
    """Copy some pages anew, those of them that go to a shard."""
    dropped = {
        table: connection.execute(
            f"DELETE FROM {table}_{shard} WHERE shard = %s AND page_id = ANY(%s)", (shard, ids)
        ).rowcount
        for table in _TABLES
    }
    copies.pages[shard] += _copy_pages(connection, parent, shard, ids) - dropped["pages"]
    copies.urls += _copy_urls(connection, parent, shard, ids) - dropped["page_urls"]


def _drop_vanished(connection: psycopg.Connection, parent: int, shard: int, copies: Copies) -> None:
    """Drop what is copied of pages that are not there any more."""
    copies.pages[shard] -= connection.execute(
        f"DELETE FROM pages_{shard} AS copy WHERE NOT EXISTS "
        f"(SELECT FROM pages_{parent} AS page WHERE page.page_id = copy.page_id)"
    ).rowcount
    copies.urls -= connection.execute(
        f"DELETE FROM page_urls_{shard} AS copy WHERE NOT EXISTS "
        f"(SELECT FROM pages_{shard} AS page WHERE page.page_id = copy.page_id)"
    ).rowcount


def _copy_pages(
    connection: psycopg.Connection, parent: int, shard: int, ids: NDArray[np.int64] | None
) -> int:
    """Copy pages that go to a shard, all or only some; how many."""
    found = f"FROM pages_{parent} AS pages JOIN host_moves AS moved USING (host_id)"
    return _copy(connection, "pages", shard, f"{found} WHERE moved.shard = {shard}", parent, ids)


def _copy_urls(
    connection: psycopg.Connection, parent: int, shard: int, ids: NDArray[np.int64] | None
) -> int:
    """The same of their URLs, once the pages are copied."""
    found = f"FROM page_urls_{parent} AS page_urls JOIN pages_{shard} AS page USING (page_id)"
    return _copy(connection, "page_urls", shard, f"{found} WHERE true", parent, ids)


def _copy(
    connection: psycopg.Connection,
    table: str,
    shard: int,
    found: str,
    parent: int,
    ids: NDArray[np.int64] | None,
) -> int:
    rows = connection.execute(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attname <> 'shard' ORDER BY attnum",
        (table,),
    ).fetchall()
    columns = [str(name) for (name,) in rows]
    values = ", ".join(f"{table}.{name}" for name in columns)
    condition, picked = _among(table, parent, ids)
    return connection.execute(
        f"INSERT INTO {table}_{shard} (shard, {', '.join(columns)}) "
        f"SELECT {shard}, {values} {found} AND {condition}",
        picked,
    ).rowcount


def _among(
    table: str, parent: int, ids: NDArray[np.int64] | None
) -> tuple[str, tuple[NDArray[np.int64], ...]]:
    """A condition that a page of a shard is one of some; None: of all."""
    if ids is None:
        return "true", ()
    return f"{table}.shard = {parent} AND {table}.page_id = ANY(%s)", (ids,)
