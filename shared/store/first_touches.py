"""Blocks of a shard's pages go to the server's log before the shard is held, not meanwhile.

After a checkpoint the server writes a whole block to its log when somebody changes it for the first
time. Where a split deletes what has moved that would be every block of the shard, which takes
longer than the deleting. So one row in each block is locked and let go before: that changes the
block too, and no row.
"""

from collections.abc import Callable
from typing import Final

import psycopg

from shared.store.partitions import runs_of_blocks

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
    """Change a row's lock in each block of a shard's pages, some blocks in a transaction.

    Their URLs are deleted later (`left_urls`).

    Args:
        connection: of the tables' owner, with autocommit.
        parent: the shard.
        meanwhile: called between two transactions.

    Returns:
        how many blocks.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    touched, table = 0, f"pages_{parent}"
    for begin, end in runs_of_blocks(connection, table, _BLOCKS_AT_ONCE):
        row = connection.execute(
            _TOUCH.format(table=table), {"begin": begin, "end": end}
        ).fetchone()
        touched += 0 if row is None else int(row[0])
        meanwhile()
    return touched
