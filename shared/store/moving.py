"""Moving rows to the shards that a shard's hosts are split among.

A host's name says where it goes, and its pages with it. What is noted of what was erased has no
name any more: each shard of the family keeps all of it. Imports are noted where they were: who
loads a shard finds their pages anyway.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout
from shared.store.connection import connect
from shared.store.copies import Copies, put_in_place
from shared.store.deployment import StoreMismatch
from shared.store.erased_traces import observation_runs
from shared.store.left_urls import delete_left_urls
from shared.store.page_classes import copy_classes
from shared.store.server_time import SERVERS_TIME
from shared.store.unanswered import move_unanswered

_EMPTY: Final = ("pages", "page_urls", "hosts")
"""Tables in which shards have nothing before they get their hosts."""

_MOVES: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS host_moves (host_id int8 PRIMARY KEY, shard int2 NOT NULL)
ON COMMIT DROP
"""

_NEW_HOSTS: Final = """
SELECT host_id, host FROM hosts WHERE shard = %s
AND NOT EXISTS (SELECT FROM host_moves AS noted WHERE noted.host_id = hosts.host_id)
"""

_NOT_FOLLOWED: Final = (
    "SELECT parent FROM shard_splits WHERE split_at IS NOT NULL AND observations_moved_at IS NULL"
)

_FOLLOW: Final = """
UPDATE {table} AS found SET shard = moved.shard
FROM (
    SELECT old.ctid, page.shard
    FROM {table} AS old,
        generate_series(old.shard + %(before)s, %(shards)s - 1, %(before)s) AS child (shard),
        pages AS page
    WHERE old.ctid >= %(begin)s::tid AND old.ctid < %(end)s::tid AND old.shard < %(before)s
        AND page.shard = child.shard AND page.page_id = old.page_id
) AS moved
WHERE found.ctid = moved.ctid
"""

Progress = Callable[[int, int], None]
"""Told how much of how much is done."""


@dataclass(frozen=True, slots=True)
class SplitCounts:
    """What went to other shards."""

    pages: int
    hosts: int


def move_rows(
    connection: psycopg.Connection, layout: Layout, parent: int, copies: Copies
) -> SplitCounts:
    """Move what the other shards of a family get of their parent's.

    Args:
        connection: with the transaction, in which nobody else writes these shards.
        layout: the numbers of shards before and after.
        parent: the shard.
        copies: of its pages, for the shards that have no partitions yet.

    Raises:
        StoreMismatch: shards that must be empty are not.
    """
    children = np.array(layout.family_of(parent)[1:], np.int16)
    _require_empty(connection, children)
    note_moves(connection, layout, parent)
    pages = put_in_place(connection, parent, copies)
    if attached := sorted(set(children.tolist()) - copies.pages.keys()):
        pages += _move_pages(connection, parent, np.array(attached, np.int16))
    move_unanswered(connection, parent, children.tolist())
    hosts = connection.execute(
        "UPDATE hosts AS host SET shard = moved.shard FROM host_moves AS moved "
        "WHERE host.shard = %(parent)s AND host.host_id = moved.host_id "
        "AND moved.shard <> %(parent)s",
        {"parent": parent},
    ).rowcount
    for table in ("erased_pages", "erased_hosts"):
        _copy_erased(connection, table, parent, children)
    copy_classes(connection, parent, children.tolist())
    return SplitCounts(pages, hosts)


def _require_empty(connection: psycopg.Connection, children: NDArray[np.int16]) -> None:
    for table in _EMPTY:
        row = connection.execute(
            f"SELECT min(shard) FROM {table} WHERE shard = ANY(%s)", (children,)
        ).fetchone()
        if row and row[0] is not None:
            raise StoreMismatch(
                f"table {table} has rows of shard {row[0]}, whose parent is not split yet: an "
                "estimator of an older version has written them; bring all up to date"
            )


def note_moves(connection: psycopg.Connection, layout: Layout, parent: int) -> None:
    """Note where a shard's hosts belong, those that are not noted yet, in a table `host_moves` of
    this transaction.

    Args:
        connection: with the transaction.
        layout: the numbers of shards before and after.
        parent: the shard.
    """
    # Tables of hashes fit; and to compile the statements costs more than it saves.
    connection.execute("SET LOCAL work_mem = '128MB'")
    connection.execute("SET LOCAL jit = off")
    connection.execute(_MOVES)
    hosts = connection.execute(_NEW_HOSTS, (parent,)).fetchall()
    host_ids = np.array([host_id for host_id, _ in hosts], np.int64)
    shards = np.array([shard_of(host, layout.shards) for _, host in hosts], np.int16)
    connection.execute(
        "INSERT INTO host_moves SELECT * FROM unnest(%s::int8[], %s::int2[])", (host_ids, shards)
    )
    connection.execute("ANALYZE host_moves")


def _move_pages(connection: psycopg.Connection, parent: int, attached: NDArray[np.int16]) -> int:
    """Move pages to shards that have partitions, as the release before made them all at once."""
    return connection.execute(
        "WITH page AS ("
        "    UPDATE pages SET shard = moved.shard FROM host_moves AS moved "
        "    WHERE pages.shard = %(parent)s AND pages.host_id = moved.host_id "
        "        AND moved.shard = ANY(%(attached)s)"
        "    RETURNING page_id, pages.shard) "
        "UPDATE page_urls AS url SET shard = page.shard FROM page "
        "WHERE url.shard = %(parent)s AND url.page_id = page.page_id",
        {"parent": parent, "attached": attached},
    ).rowcount


def _copy_erased(
    connection: psycopg.Connection, table: str, parent: int, children: NDArray[np.int16]
) -> None:
    key = {"erased_pages": "page_id", "erased_hosts": "host_id"}[table]
    connection.execute(
        f"INSERT INTO {table} (shard, {key}, erased_at) SELECT child.shard, {key}, erased_at "
        f"FROM {table} AS known, unnest(%s) AS child (shard) WHERE known.shard = %s",
        (children, parent),
    )


def move_observations(
    database_url: str, layout: Layout, progress: Progress = lambda _done, _total: None
) -> int:
    """Let what crawls found follow their pages, of all shards that are split. Idempotent.

    They have no index: all are looked through, some blocks in a transaction, while workers go on.
    When that is done, it is noted with the splits, and not done again.

    Args:
        database_url: libpq URL, of the tables' owner.
        layout: by `growth.begin_growth`.
        progress: told how many of how many runs of blocks are done.

    Returns:
        how many were moved.
    """
    moved = 0
    with connect(database_url, "cli", autocommit=True) as connection:
        splits = [parent for (parent,) in connection.execute(_NOT_FOLLOWED).fetchall()]
        if not splits:
            return 0
        runs = list(observation_runs(connection))
        for done, (table, begin, end) in enumerate(runs):
            progress(done, len(runs))
            moved += connection.execute(
                _FOLLOW.format(table=table),
                {"shards": layout.shards, "before": layout.grown_from, "begin": begin, "end": end},
            ).rowcount
        progress(len(runs), len(runs))
        connection.execute(
            f"UPDATE shard_splits SET observations_moved_at = {SERVERS_TIME} "
            "WHERE parent = ANY(%s)",
            (np.array(splits, np.int16),),
        )
    return moved


def tidy(connection: psycopg.Connection, layout: Layout, parent: int) -> None:
    """Delete what a split has left, free the room of what has moved, and let the planner know the
    pages; workers go on.

    Args:
        connection: of the tables' owner, with autocommit.
        layout: of which the shard is.
        parent: that has been split.
    """
    delete_left_urls(connection, parent)
    for shard in layout.family_of(parent):
        connection.execute(f"VACUUM (ANALYZE) pages_{shard}, page_urls_{shard}")
