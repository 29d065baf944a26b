"""What is left to be done after an import of many pages."""

from typing import Final

import psycopg

SHARE_TIDIED: Final = 0.5
"""Of the pages must be new for the tables to be tidied up at the end of an import."""

_STATISTICS: Final = 30
"""Ids are spread evenly: a third of the rows that the server would look at says the same. Of each
shard it looks at 300 times as many as this number."""


def tidy(connection: psycopg.Connection, added: int) -> None:
    """Let the planner know the pages, and leave nothing to be written by the first who reads them.

    Whoever reads a row first notes in it that its transaction has ended, and the server then writes
    its block, and with checksums a copy of it to the log: for a shard's first load that is
    more work than the reading. After an import that adds little to what is there, the pages
    that others have changed would come in for it too: it is left to autovacuum.
    """
    connection.execute(f"SET LOCAL default_statistics_target = {_STATISTICS}")
    connection.execute("ANALYZE pages")
    row = connection.execute(
        "SELECT coalesce(sum(reltuples), 0) FROM pg_inherits JOIN pg_class ON oid = inhrelid "
        "WHERE inhparent = 'pages'::regclass"
    ).fetchone()
    connection.commit()
    if added < SHARE_TIDIED * float(row[0] if row else 0):
        return
    connection.autocommit = True
    for table in ("pages", "page_urls"):
        connection.execute(f"VACUUM (FREEZE) {table}")
