"""Where each stream of events stands that the poller reads."""

import psycopg


def read_cursor(connection: psycopg.Connection, source: str) -> str:
    """What to tell a stream's server, to go on after what was read; empty: nothing was."""
    query = "SELECT cursor FROM stream_cursors WHERE source = %s"
    found = connection.execute(query, (source,)).fetchone()
    return "" if found is None else str(found[0])


def list_streams(connection: psycopg.Connection) -> set[str]:
    """The sources of all streams that were ever read."""
    return {str(source) for (source,) in connection.execute("SELECT source FROM stream_cursors")}


def write_cursor(connection: psycopg.Connection, source: str, cursor: str) -> None:
    """Write down how far a stream is read."""
    connection.execute(
        "INSERT INTO stream_cursors (source, cursor) VALUES (%s, %s) "
        "ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor",
        (source, cursor),
    )
