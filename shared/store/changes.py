"""Who changed the budget and limits, erased pages, and when: a row each, which nobody alters."""

from typing import Any, Literal, NamedTuple

from psycopg.types.json import Jsonb

from shared.store.connection import connect

About = Literal["budget", "host", "backup", "pages"]

MOST_NAME: int = 200
"""Characters of an operator's name; what is longer is cut."""


class Change(NamedTuple):
    """A change that an operator made."""

    at: float
    """Clock time, Unix seconds."""
    who: str
    about: About
    host: str | None
    """Whose limit; None: it is about no host."""
    change: dict[str, Any]
    """What was set."""


def note_change(database_url: str, change: Change) -> None:
    """Note a change.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses.
    """
    with connect(database_url, "cli") as connection:
        connection.execute(
            "INSERT INTO operator_changes (changed_at, who, about, host, change) "
            "VALUES (%s, %s, %s, %s, %s)",
            (change.at, change.who[:MOST_NAME], change.about, change.host, Jsonb(change.change)),
        )


def last_changes(database_url: str, count: int, host: str | None = None) -> list[Change]:
    """The last changes, the newest first.

    Args:
        database_url: libpq URL.
        count: how many.
        host: only those of its limit; None: all.
    """
    with connect(database_url, "cli") as connection:
        rows = connection.execute(
            "SELECT changed_at, who, about, host, change FROM operator_changes "
            "WHERE %(host)s::text IS NULL OR host = %(host)s ORDER BY id DESC LIMIT %(count)s",
            {"host": host, "count": count},
        ).fetchall()
    return [Change(*row) for row in rows]
