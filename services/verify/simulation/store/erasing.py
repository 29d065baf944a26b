"""The functions of `shared.store.erasing`, on the model."""

from typing import Any

import numpy as np

from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database
from shared.store.columns import RemovedPages
from shared.store.erasing import Erased, ErasedRows


class ErasureStatements:
    """Erasing, and who looks at what was erased."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def erase_pages(self, connection: Connection, gone: ErasedRows) -> None:
        """As `shared.store.erasing.erase_pages`."""
        database, keys = self._database, _keys(gone)
        database.lock(connection.mine, [("page", *key) for key in keys])

        def write() -> None:
            for (shard, page_id), at in keys.items():
                database.pages.get(shard, {}).pop(page_id, None)
                database.urls.pop((shard, page_id), None)
                database.unanswered.get(shard, {}).pop(page_id, None)
                known = database.erased_pages.setdefault(shard, {})
                known[page_id] = max(at, known.get(page_id, at))

        connection.mine.writes.append(write)

    def erase_hosts(self, connection: Connection, gone: ErasedRows) -> None:
        """As `shared.store.erasing.erase_hosts`."""
        database, keys = self._database, _keys(gone)
        database.lock(connection.mine, [("host", *key) for key in keys])

        def write() -> None:
            for (shard, host_id), at in keys.items():
                database.hosts.get(shard, {}).pop(host_id, None)
                known = database.erased_hosts.setdefault(shard, {})
                known[host_id] = max(at, known.get(host_id, at))

        connection.mine.writes.append(write)


def erased_of(database: Database, shard: int) -> Erased:
    """As `shared.store.erasing.read_erased`."""
    pages = sorted(database.erased_pages.get(shard, {}).items())
    ids, times = [page_id for page_id, _ in pages], [at for _, at in pages]
    return Erased(
        RemovedPages(np.array(ids, np.int64), np.array(times, np.float64)),
        dict(database.erased_hosts.get(shard, {})),
    )


def _keys(gone: ErasedRows) -> dict[Any, float]:
    columns = (column.tolist() for column in gone)
    return {(shard, own): at for shard, own, at in zip(*columns, strict=True)}
