"""In which characters the database keeps text."""

from typing import Final

import psycopg

from shared.runtime.findings import Finding

WANTED: Final = "UTF8"


def look_at_encoding(connection: psycopg.Connection) -> Finding:
    """Whether every text can be kept, and is told as such to all who read it."""
    row = connection.execute("SHOW server_encoding").fetchone()
    found = str(row[0]) if row else "unknown"
    if found == WANTED:
        return Finding("ok", "encoding", found)
    return Finding(
        "note",
        "encoding",
        found,
        WANTED,
        "any name of a class, a group or an operator can be kept, and other programs read it",
        "pg_dump, and restore into a database made with ENCODING 'UTF8' TEMPLATE template0",
    )
