"""URLs that are left in a shard's table when it is split, of pages that went to other shards.

Nobody reads a URL but with its page, so they are in nobody's way, and the shard is not held for
them: they are deleted afterwards, while all go on. Whoever is killed amid it leaves some behind,
and the next finds them: they have no page in their shard. A page and its URL come and go in one
transaction, so no other URL is ever without.
"""

from collections.abc import Callable
from typing import Final

import psycopg

from shared.store.partitions import runs_of_blocks, without_partitions

_BLOCKS_AT_ONCE: Final = 20_000
"""A transaction looks through so many, about a million URLs, and locks only those it deletes."""

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
    """Delete the URLs that a split has left where they were. Idempotent.

    Args:
        connection: of the tables' owner, with autocommit.
        parent: the shard.
        meanwhile: called between two transactions.

    Returns:
        how many.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    if without_partitions(connection, [parent]):
        return 0
    deleted = 0
    for begin, end in runs_of_blocks(connection, f"page_urls_{parent}", _BLOCKS_AT_ONCE):
        with connection.transaction():
            # To compile the statement costs more than it saves.
            connection.execute("SET LOCAL jit = off")
            connection.execute("SET LOCAL work_mem = '128MB'")
            deleted += connection.execute(
                _DELETE.format(shard=parent), {"begin": begin, "end": end}
            ).rowcount
        meanwhile()
    return deleted
