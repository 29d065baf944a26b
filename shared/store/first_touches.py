"""Blocks of a shard's pages go to the server's log before the shard is held, not meanwhile.

After a checkpoint the server writes a whole block to its log when somebody changes it for the first
time. Where a split deletes what has moved that would be every block of the shard, which takes
longer than the deleting. So one row in each block is locked and let go before: that changes the
block too, and no row.
"""

from collections.abc import Callable, Iterator
from typing import Final

import psycopg

_TABLES: Final = ("pages", "page_urls")

_BLOCKS_AT_ONCE: Final = 2_000
"""Rows are locked for some tens of milliseconds."""

_TOUCH: Final = """
SELECT count(*) FROM (
    SELECT FROM {table} WHERE ctid = ANY(ARRAY(
        SELECT min(ctid) FROM {table} WHERE ctid >= %(begin)s::tid AND ctid < %(end)s::tid
        GROUP BY (ctid::text::point)[0]
    ))
    FOR KEY SHARE SKIP LOCKED
) AS touched
"""
"""Waits for nobody, and keeps nobody waiting but who erases that very row. One that was changed in
between is left alone: then its block is touched already."""


def touch_blocks(
    connection: psycopg.Connection, parent: int, meanwhile: Callable[[], object]
) -> int:
    """Change a row's lock in each block of a shard's pages and URLs, some blocks in a transaction.

    Args:
        connection: of the tables' owner, with autocommit.
        parent: the shard.
        meanwhile: called between two transactions.

    Returns:
        how many blocks.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    touched = 0
    for table in _TABLES:
        for begin, end in _runs(connection, f"{table}_{parent}"):
            row = connection.execute(
                _TOUCH.format(table=f"{table}_{parent}"),
                {"begin": f"({begin},0)", "end": f"({end},0)"},
            ).fetchone()
            touched += 0 if row is None else int(row[0])
            meanwhile()
    return touched


def _runs(connection: psycopg.Connection, table: str) -> Iterator[tuple[int, int]]:
    row = connection.execute(
        "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int8", (table,)
    ).fetchone()
    blocks = 0 if row is None else int(row[0])
    for begin in range(0, blocks, _BLOCKS_AT_ONCE):
        yield begin, min(begin + _BLOCKS_AT_ONCE, blocks)
