"""How many shards there are, and how far a growth is."""

from typing import Any, NamedTuple

from shared.contracts.databases import Database, Databases
from shared.contracts.layout import Layout
from shared.store.asking_all import ask_all
from shared.store.connection import connect
from shared.store.layout import read_layout
from shared.store.splits import Split, read_splits
from shared.store.status import count_by_shard


class _Told(NamedTuple):
    """What one database says."""

    layout: Layout
    splits: dict[int, Split]
    pages: dict[int, int]


def shards_now(databases: Databases) -> tuple[dict[str, Any], dict[Database, str]]:
    """The shards: their number, how far a growth is, and their pages, which are counted.

    Returns:
        `shards`, `grown_from`, `is_growing`, and `states`, one a shard: `shard`, `grown_from` (the
        shard that had its hosts before the last growth), `state` (of the split of that one; None:
        there was no growth) and `pages`. Of several databases, also which are away, and why: their
        shards are left out of `states`, and of `is_growing`.

    Raises:
        psycopg.Error: the only database, or each of them, is away or refuses.
        StoreMismatch: it has no tables, or other shards.
    """

    def ask(database: Database) -> _Told:
        with connect(database.url, "cli") as connection:
            own = read_layout(connection)
            parents = databases.had_by(database, range(own.grown_from))
            return _Told(own, read_splits(connection, parents), count_by_shard(connection))

    said, away = ask_all(databases, "cli", ask)
    own = {database: told.layout for database, told in said.items()}
    # What is taken of one that is away is left out below.
    layout = databases.layout_of_all(dict.fromkeys(away, next(iter(own.values()))) | own)
    states = [
        {
            "shard": shard,
            "grown_from": (parent := told.layout.parent_of(shard)),
            "state": _state(told.splits.get(parent)),
            "pages": told.pages.get(shard, 0),
        }
        for shard in range(layout.shards)
        if (told := said.get(databases.of(shard))) is not None
    ]
    parents = {parent for parent in range(layout.grown_from) if databases.of(parent) in said}
    answer = {
        "shards": layout.shards,
        "grown_from": layout.grown_from,
        "is_growing": layout.is_growing and not parents <= layout.split,
        "states": states,
    }
    return answer, away


def _state(split: Split | None) -> str | None:
    return None if split is None else split.state.name.lower()
