"""Which pages are there."""

from collections.abc import Iterable

import psycopg

from shared.contracts.identity import PageIdentity
from shared.store.layout import read_layout


def ids_by_shard(
    connection: psycopg.Connection, pages: Iterable[PageIdentity]
) -> dict[int, list[int]]:
    """Shard → ids of the pages that it would have."""
    layout = read_layout(connection)
    found: dict[int, list[int]] = {}
    for page in pages:
        found.setdefault(layout.shard_of(page.host), []).append(page.page_id)
    return found


def known_pages(connection: psycopg.Connection, pages: Iterable[PageIdentity]) -> set[int]:
    """Ids of those pages that are there, whatever their status."""
    query = "SELECT page_id FROM pages WHERE shard = %s AND page_id = ANY(%s)"
    found: set[int] = set()
    for shard, page_ids in ids_by_shard(connection, pages).items():
        found.update(int(row[0]) for row in connection.execute(query, (shard, page_ids)))
    return found
