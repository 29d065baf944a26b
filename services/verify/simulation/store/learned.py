"""The functions of `shared.store.learned_pages`, on the model."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import psycopg
from numpy.typing import NDArray

from services.verify.simulation.loop import Hanging
from services.verify.simulation.store.columns import by_source_of, columns_of
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database, Row
from shared.store.binary import Blobs
from shared.store.columns import LearningColumns, PageColumns
from shared.store.directories import directory_of
from shared.store.history import unpack
from shared.store.learned_pages import LearnedPages
from shared.store.owners import NO_OWNER, Owner


class LearnedStatements:
    """Reading pages by their ids, or all that have crawl records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read_pages(
        self,
        connection: Connection,
        shard: int,
        owner: Owner,
        page_ids: NDArray[np.int64],
        directories: NDArray[np.uint16] | None = None,  # noqa: ARG002
        *,
        is_ahead: bool = False,  # noqa: ARG002
    ) -> LearnedPages:
        """As `shared.store.learned_pages.read_pages`."""
        self._reach(connection, shard, owner)
        pages = self._database.pages.get(shard, {})
        found = sorted(set(page_ids.tolist()) & pages.keys())
        return learned_of(self._database, shard, [pages[page_id] for page_id in found])

    def pages_of_host(
        self, connection: Connection, shard: int, owner: Owner, host_id: int
    ) -> NDArray[np.int64]:
        """As `shared.store.learned_pages.pages_of_host`."""
        self._reach(connection, shard, owner)
        pages = self._database.pages.get(shard, {})
        return np.array([k for k, row in pages.items() if row["host_id"] == host_id], np.int64)

    def crawled_pages(
        self, database_url: str, shard: int, progress: Callable[[], None]
    ) -> Iterator[LearnedPages]:
        """As `shared.store.learned_pages.crawled_pages`; the hosts come one by one."""
        _ = database_url, progress
        self._database.check()
        pages = self._database.pages.get(shard, {})
        crawled = [pages[page_id] for page_id in sorted(pages) if pages[page_id]["history"][1]]
        for host_id in sorted({row["host_id"] for row in crawled}):
            rows = [row for row in crawled if row["host_id"] == host_id]
            yield learned_of(self._database, shard, rows)
        if not crawled:
            yield LearnedPages.none()

    def _reach(self, connection: Connection, shard: int, owner: Owner) -> None:
        """Get through to the server, at once or not at all: what was begun is not begun again."""
        try:
            connection.require()
        except Hanging:
            raise psycopg.OperationalError("no answer: the connection timed out") from None
        row = self._database.owners.get(shard)
        found = Owner(NO_OWNER, "nobody") if row is None else Owner(row["epoch"], row["holder"])
        owner.require(found, shard)


def learned_of(database: Database, shard: int, rows: Sequence[Row]) -> LearnedPages:
    """Rows as the estimator takes them."""
    histories = [row["history"] for row in rows]
    ends = np.cumsum([0, *map(len, histories)], dtype=np.int64)
    urls = [database.urls[shard, row["page_id"]] for row in rows]
    return LearnedPages(
        columns_of(PageColumns, rows),
        columns_of(LearningColumns, rows),
        unpack(Blobs(np.frombuffer(b"".join(histories), np.uint8), ends)),
        by_source_of(rows),
        np.array([directory_of(url) for url in urls], np.uint16),
    )
