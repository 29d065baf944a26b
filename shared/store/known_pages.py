"""Which pages are there."""

from collections.abc import Iterable, Sequence

import psycopg

from shared.contracts.identity import PageIdentity
from shared.contracts.layout import Layout
from shared.store.layout import read_layout


def ids_by_shard(
    connection: psycopg.Connection, pages: Iterable[PageIdentity]
) -> dict[int, list[int]]:
    """Shard → ids of the pages that it would have."""
    return _by_shard(read_layout(connection), pages)


def known_pages(connection: psycopg.Connection, pages: Sequence[PageIdentity]) -> set[int]:
    """Ids of those pages that are there, whatever their status.

    Args:
        connection: in autocommit.
        pages: that are looked for.
    """
    query = "SELECT page_id FROM pages WHERE shard = %s AND page_id = ANY(%s)"
    layout = read_layout(connection)
    while True:
        found: set[int] = set()
        for shard, page_ids in _by_shard(layout, pages).items():
            found.update(int(row[0]) for row in connection.execute(query, (shard, page_ids)))
        # A shard that was split meanwhile had some of them somewhere else.
        before, layout = layout, read_layout(connection)
        if layout == before:
            return found


def _by_shard(layout: Layout, pages: Iterable[PageIdentity]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for page in pages:
        found.setdefault(layout.shard_of(page.host), []).append(page.page_id)
    return found
