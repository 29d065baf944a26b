"""The time of the database's server."""

from typing import Final

import psycopg

SERVERS_TIME: Final = "extract(epoch FROM clock_timestamp())::float8"
"""Unix seconds, in a statement."""


def read_time(connection: psycopg.Connection) -> float:
    """Unix seconds by the server's clock, at some moment while it is asked."""
    row = connection.execute(f"SELECT {SERVERS_TIME}").fetchone()
    if row is None:
        raise psycopg.OperationalError("the server does not tell its time")
    return float(row[0])
