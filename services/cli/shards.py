"""How many shards there are, and how far a growth is."""

from typing import Any

from shared.contracts.databases import Database, Databases
from shared.contracts.layout import Layout
from shared.store.connection import connect
from shared.store.layout import read_layout
from shared.store.splits import Split, read_splits
from shared.store.status import count_by_shard


def shards_now(databases: Databases) -> dict[str, Any]:
    """The shards: their number, how far a growth is, and their pages, which are counted.

    Returns:
        `shards`, `grown_from`, `is_growing`, and `states`, one a shard: `shard`, `grown_from` (the
        shard that had its hosts before the last growth), `state` (of the split of that one; None:
        there was no growth) and `pages`.
    """
    layouts: dict[Database, Layout] = {}
    splits: dict[int, Split] = {}
    pages: dict[int, int] = {}
    for database in databases.each:
        with connect(database.url, "cli") as connection:
            own = layouts[database] = read_layout(connection)
            parents = databases.had_by(database, range(own.grown_from))
            splits |= read_splits(connection, parents)
            pages |= count_by_shard(connection)
    layout = databases.layout_of_all(layouts)
    parents = [layouts[databases.of(shard)].parent_of(shard) for shard in range(layout.shards)]
    states = [
        {
            "shard": shard,
            "grown_from": parent,
            "state": _state(splits.get(parent)),
            "pages": pages.get(shard, 0),
        }
        for shard, parent in enumerate(parents)
    ]
    return {
        "shards": layout.shards,
        "grown_from": layout.grown_from,
        "is_growing": layout.is_growing,
        "states": states,
    }


def _state(split: Split | None) -> str | None:
    return None if split is None else split.state.name.lower()
