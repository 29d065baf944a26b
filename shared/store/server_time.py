"""The time of the database's server."""

import psycopg


def read_time(connection: psycopg.Connection) -> float:
    """Unix seconds by the server's clock, at some moment while it is asked."""
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    if row is None:
        raise psycopg.OperationalError("the server does not tell its time")
    return float(row[0])
