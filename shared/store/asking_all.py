"""Asking all databases for what they know together, of which some may be away."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import psycopg

from shared.contracts.databases import Database, Databases
from shared.store.connection import WORKING, Limits, connect, first_line
from shared.store.deployment import UNMIGRATED, StoreMismatch, require_held

T = TypeVar("T")


class Heard(NamedTuple, Generic[T]):
    """What was said, and by whom nothing was."""

    said: dict[Database, T]
    away: dict[Database, str]
    """Of several, those whose shards are left out, and why."""


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
        StoreMismatch: each of several has no tables, or other shards.
    """
    if not databases.are_several:
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
