"""URLs that are left in a shard's table when it is split, of pages that went to other shards.

Nobody reads a URL but with its page, so they are in nobody's way, and the shard is not held for
them: they are deleted afterwards, while all go on. They have no page in their shard: a page and its
URL come and go in one transaction, so no other URL is ever without.

A shard's URLs are looked through for them some blocks at a time. Whoever is killed amid it leaves
some behind, and the next finds them; once none is left, that is noted with the split, and nobody
looks again.
"""

from collections.abc import Callable
from typing import Final

import psycopg

from shared.store.partitions import runs_of_blocks
from shared.store.server_time import SERVERS_TIME

_BLOCKS_AT_ONCE: Final = 1_000
"""A transaction looks through so many, about a hundred thousand URLs, some tenths of a second long,
and locks only those it deletes."""

_IS_LEFT: Final = """
SELECT EXISTS (SELECT FROM shard_splits
    WHERE parent = %s AND split_at IS NOT NULL AND urls_deleted_at IS NULL)
"""

_DELETE: Final = """
DELETE FROM page_urls_{shard} AS url
WHERE url.ctid >= %(begin)s::tid AND url.ctid < %(end)s::tid
    AND NOT EXISTS (
        SELECT FROM pages_{shard} AS page
        WHERE page.shard = url.shard AND page.page_id = url.page_id
    )
"""


def delete_left_urls(
    connection: psycopg.Connection, parent: int, meanwhile: Callable[[], object] = lambda: None
) -> int:
    """Delete the URLs that a split has left where they were, unless that is done. Idempotent.

    Args:
        connection: of the tables' owner, with autocommit.
        parent: the shard.
        meanwhile: called between two transactions.

    Returns:
        how many.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    if connection.execute(_IS_LEFT, (parent,)).fetchone() == (False,):
        return 0
    deleted = 0
    for begin, end in runs_of_blocks(connection, f"page_urls_{parent}", _BLOCKS_AT_ONCE):
        with connection.transaction():
            # To compile the statement costs more than it saves; and to read all pages for each run
            # of blocks costs more than to look some up, where there are many.
            for setting in ("jit", "enable_hashjoin", "enable_mergejoin"):
                connection.execute(f"SET LOCAL {setting} = off")
            deleted += connection.execute(
                _DELETE.format(shard=parent), {"begin": begin, "end": end}
            ).rowcount
        meanwhile()
    connection.execute(
        f"UPDATE shard_splits SET urls_deleted_at = {SERVERS_TIME} WHERE parent = %s", (parent,)
    )
    return deleted
