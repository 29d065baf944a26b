"""Asking databases that are seen to be those of the settings: one of them, or all for what they
know together, of which some may be away."""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

import psycopg

from shared.contracts.databases import Database, Databases
from shared.store.connection import WORKING, Limits, connect, first_line
from shared.store.deployment import UNMIGRATED, StoreMismatch, require_held

T = TypeVar("T")

_SEEN: Final[set[Database]] = set()
"""Those that were seen to have their shards: shards do not move, so once is enough."""


class Heard(NamedTuple, Generic[T]):
    """What was said, and by whom nothing was."""

    said: dict[Database, T]
    away: dict[Database, str]
    """Of several, those whose shards are left out, and why."""


def url_of(database: Database, role: str, limits: Limits = WORKING) -> str:
    """The URL of a database that is seen to have the shards which the settings say: the address of
    one of several, given as the only one, would answer for its own shards as if they were all.

    Args:
        database: by the settings.
        role: who asks, as seen in `pg_stat_activity`.
        limits: of the session.

    Raises:
        StoreMismatch: it has others, or is of an older version.
        psycopg.Error: it is away, or refuses.
    """
    if database not in _SEEN and _has_its_shards(database, role, limits):
        _SEEN.add(database)
    return database.url


def require_all_held(databases: Databases, role: str) -> None:
    """Make sure of each database that it has the shards which the settings say.

    Raises:
        StoreMismatch, psycopg.Error: as `url_of`.
    """
    for database in databases.each:
        url_of(database, role)


def ask_all(
    databases: Databases, role: str, ask: Callable[[Database], T], limits: Limits = WORKING
) -> Heard[T]:
    """Ask each database.

    Args:
        databases: of several, one that is away is left out; so is one without tables, with other
            shards than the settings say, or that this user may not read.
        role: who connects, as seen in `pg_stat_activity`.
        ask: what one of them says.
        limits: of the sessions.

    Raises:
        psycopg.Error: the only database, or each of them, is away or refuses.
        StoreMismatch: the only one, or each of several, has other shards; or each of several has no
            tables.
    """
    if not databases.are_several:
        url_of(databases.home, role, limits)
        return Heard({databases.home: ask(databases.home)}, {})
    heard = Heard[T]({}, {})
    why: list[psycopg.Error | StoreMismatch] = []
    for database in databases.each:
        try:
            with connect(database.url, role, autocommit=True, limits=limits) as connection:
                require_held(connection, database.held)
            heard.said[database] = ask(database)
        except (psycopg.Error, StoreMismatch) as error:
            is_empty = isinstance(error, psycopg.errors.UndefinedTable)
            why.append(StoreMismatch(UNMIGRATED) if is_empty else error)
            heard.away[database] = first_line(why[-1])
    if not heard.said:
        raise why[0]
    return heard


def _has_its_shards(database: Database, role: str, limits: Limits) -> bool:
    """False: there is nothing to be seen, as it has no tables, or this user may not read which
    shards it has; what is asked next says so itself, where it matters."""
    with connect(database.url, role, autocommit=True, limits=limits) as connection:
        try:
            require_held(connection, database.held)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
            return False
    return True
