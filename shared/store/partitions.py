"""The partitions of tables that have one for each shard.

They come with the database, and those of a growth's new shards when their hosts come
(`shared.store.copies`): nobody has rows in a shard that has no hosts.
"""

from collections.abc import Collection, Iterator
from typing import Final

import psycopg

_MIGRATION_LOCK: Final = 0x66726573_0001
"""Advisory lock: migrations, the beginnings of growths and splits wait for each other."""

FILLFACTOR: Final = 82
"""Room on every heap page for new versions of its rows, so that updates stay HOT."""

_TABLES: Final = {"pages": f" WITH (fillfactor = {FILLFACTOR})", "page_urls": ""}
"""Table → options of its partitions."""

_ONLY: Final = "only_its_shard"
"""Constraint that tells the server of all rows of a table what shard they are of."""

_READERS: Final = """
SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END,
    acl.privilege_type
FROM pg_class, aclexplode(relacl) AS acl
WHERE pg_class.oid = %s::regclass AND acl.grantee <> relowner
"""


def lock_schema(connection: psycopg.Connection) -> None:
    """Let nobody else change tables until the end of the transaction; waits for who does.

    Args:
        connection: in a transaction that has done nothing yet. Each of its statements sees what
            others have committed before it, so what who was waited for has done is seen.
    """
    connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))


def ensure_partitions(connection: psycopg.Connection, shards: Collection[int]) -> None:
    """Make the partitions that are not there yet, while workers go on.

    Args:
        connection: of the tables' owner, in a transaction.
        shards: those that can have hosts.
    """
    for table in _TABLES:
        there = partitions_of(connection, table)
        for shard in shards:
            if f"{table}_{shard}" in there:
                continue
            # Attached, not made as a part: that would keep everybody from the whole table, and
            # wait for its longest reader.
            connection.execute(_make(table, shard, "INCLUDING ALL"))
            connection.execute(_attach(table, shard))


def partitions_of(connection: psycopg.Connection, table: str) -> set[str]:
    """The names of a table's partitions."""
    rows = connection.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = %s::regclass",
        (table,),
    ).fetchall()
    return {name for (name,) in rows}


def _make(table: str, shard: int, like: str) -> str:
    return f"CREATE TABLE {table}_{shard} (LIKE {table} {like}){_TABLES[table]}"


def _attach(table: str, shard: int) -> str:
    return f"ALTER TABLE {table} ATTACH PARTITION {table}_{shard} FOR VALUES IN ({shard})"


def without_partitions(connection: psycopg.Connection, shards: Collection[int]) -> list[int]:
    """Those of some shards that have no partitions yet."""
    there = partitions_of(connection, "pages")
    return [shard for shard in shards if f"pages_{shard}" not in there]


def make_apart(connection: psycopg.Connection, table: str, shard: int) -> None:
    """Make what is to be a partition, without keys: rows come faster, and the keys after them."""
    connection.execute(_make(table, shard, "INCLUDING ALL EXCLUDING INDEXES"))


def add_keys(connection: psycopg.Connection, table: str, shard: int) -> None:
    """Give what is to be a partition all that the server would have to look for in its rows."""
    connection.execute(
        f"ALTER TABLE {table}_{shard} ADD PRIMARY KEY (shard, page_id), "
        f"ADD CONSTRAINT {_ONLY} CHECK (shard = {shard})"
    )


def attach(connection: psycopg.Connection, table: str, shard: int) -> None:
    """Make a partition of what was made apart.

    Who reads or writes the table goes on meanwhile, and sees it when the transaction is committed.

    Args:
        connection: of the tables' owner, in a transaction.
        table: `pages` or `page_urls`.
        shard: whose rows it has.
    """
    connection.execute(_attach(table, shard))
    connection.execute(f"ALTER TABLE {table}_{shard} DROP CONSTRAINT {_ONLY}")


def share(connection: psycopg.Connection, table: str, shard: int, parent: int) -> None:
    """Let all who may use a table's partition of another shard, `parent`, use that of this one."""
    for grantee, privilege in connection.execute(_READERS, (f"{table}_{parent}",)).fetchall():
        connection.execute(f"GRANT {privilege} ON {table}_{shard} TO {grantee}")


def runs_of_blocks(
    connection: psycopg.Connection, table: str, at_once: int
) -> Iterator[tuple[str, str]]:
    """The blocks that a table has now, so many at once: the first row id in them, and the first one
    behind them."""
    row = connection.execute(
        "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int8", (table,)
    ).fetchone()
    blocks = 0 if row is None else int(row[0])
    for begin in range(0, blocks, at_once):
        yield f"({begin},0)", f"({min(begin + at_once, blocks)},0)"
