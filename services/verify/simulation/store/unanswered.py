"""The functions of `shared.store.unanswered`, on the model."""

from collections.abc import Sequence
from typing import Final

from services.verify.simulation.store.columns import columns_of, rows_of
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database
from shared.store.columns import UnansweredNews, UnansweredPages


class UnansweredStatements:
    """What schedulers write of pages that nobody answers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write_unanswered(self, connection: Connection, news: Sequence[UnansweredNews]) -> set[int]:
        """As `shared.store.unanswered.write_unanswered`."""
        database, mine = self._database, connection.mine
        ours = [one for one in news if database.claims.get(one.shard) == one.claim]
        database.lock(mine, [("claim", one.shard) for one in ours])

        def write() -> None:
            for one in ours:
                known = database.unanswered.setdefault(one.shard, {})
                for page_id in one.answered.tolist():
                    known.pop(page_id, None)
                for row in rows_of(dict(zip(_COLUMNS, one.pages.columns, strict=True))):
                    known[row["page_id"]] = row

        mine.writes.append(write)
        return {one.shard for one in ours}


_COLUMNS: Final = ("page_id", "requests", "requested_at", "deadline_at", "last_attempt_at")


def unanswered_of(database: Database, shard: int) -> UnansweredPages:
    """As `shared.store.unanswered.read_unanswered`."""
    found: UnansweredPages = columns_of(
        UnansweredPages, list(database.unanswered.get(shard, {}).values())
    )
    return found
