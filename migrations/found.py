"""What is in a database before anybody migrates it."""

from typing import NamedTuple

from shared.store.connection import connect
from shared.store.deployment import NEEDED_REVISION


class Found(NamedTuple):
    """Tables of Freshet."""

    revision: str
    """Of the schema."""
    is_of_this_version: bool
    holds_anything: bool
    """Pages or hosts; known of this version's schema alone."""


def look(database_url: str) -> Found | None:
    """What is there, which is left as it is; None: no tables of Freshet.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses.
    """
    with connect(database_url, "look") as connection:
        if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
            return None
        row = connection.execute("SELECT max(version_num) FROM alembic_version").fetchone()
        if row is None or row[0] is None:
            return None
        if row[0] != NEEDED_REVISION:
            return Found(row[0], is_of_this_version=False, holds_anything=False)
        held = connection.execute(
            "SELECT EXISTS (SELECT FROM pages) OR EXISTS (SELECT FROM hosts)"
        ).fetchone()
    return Found(row[0], is_of_this_version=True, holds_anything=held == (True,))
