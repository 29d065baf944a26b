"""The partitions of tables that have one for each shard."""

from typing import Final

from sqlalchemy import Connection, text

MIGRATION_LOCK: Final = 0x66726573_0001
"""Advisory lock: migrations and the beginnings of growths wait for each other."""

FILLFACTOR: Final = 82
"""Room on every heap page for new versions of its rows, so that updates stay HOT."""

_TABLES: Final = {"pages": f" WITH (fillfactor = {FILLFACTOR})", "page_urls": ""}
"""Table → options of its partitions."""


def lock_schema(connection: Connection) -> None:
    """Let nobody else change tables until the end of the transaction; waits for who does."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})


def ensure_partitions(connection: Connection, shards: int) -> None:
    """Make the partitions that are not there yet, while workers go on.

    Args:
        connection: of the tables' owner, in a transaction.
        shards: of the deployment.
    """
    for table, options in _TABLES.items():
        there = _partitions(connection, table)
        for shard in range(shards):
            name = f"{table}_{shard}"
            if name in there:
                continue
            # Attached, not made as a part: that would keep everybody from the whole table, and
            # wait for its longest reader.
            connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL){options}")
            connection.exec_driver_sql(
                f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES IN ({shard})"
            )


def _partitions(connection: Connection, table: str) -> set[str]:
    rows = connection.execute(
        text(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
            "WHERE inhparent = CAST(:table AS regclass)"
        ),
        {"table": table},
    )
    return {str(name) for (name,) in rows}
