"""Pages and hosts, counted and listed, as fleets ask for them. Removed pages are not there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from shared.contracts.databases import Database, Databases
from shared.contracts.identity import PageIdentity, host_id_of
from shared.store.connection import connect
from shared.store.layout import read_layout
from shared.store.page_status import ACTIVE, FIRST_AWAY, REMOVED

PATIENCE_SECONDS: Final = 30
"""A question that takes longer is given up: it looks through all pages."""

URLS_AT_ONCE: Final = 10_000
"""Of pages that are listed one and all."""

_COUNTS: Final = f"""
SELECT count(*) FILTER (WHERE status = {ACTIVE}) AS active,
       count(*) FILTER (WHERE status >= {FIRST_AWAY}) AS away,
       count(*) FILTER (WHERE status = {ACTIVE} AND last_crawled_at = '-infinity') AS never_crawled,
       count(*) FILTER (WHERE status = {ACTIVE} AND failures > 0) AS failing
FROM pages
"""
_HOSTS: Final = "FROM hosts WHERE %(all)s OR greatest(blocked_until, asked_until) <= %(now)s"
_PAGES: Final = f"FROM pages JOIN page_urls USING (shard, page_id) WHERE status <> {REMOVED}"
_OF_HOST: Final = (
    f"{_PAGES} AND shard = %(shard)s AND host_id = %(host_id)s AND starts_with(url, %(prefix)s)"
)
_UNDER: Final = {False: _OF_HOST, True: f"{_OF_HOST} AND status = {ACTIVE}"}
"""By whether only those are meant that are crawled."""

_COLUMNS: Final = (
    "url, status, importance, first_seen_at, last_crawled_at, crawls, changes, failures"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which pages are asked for."""

    host: str | None = None
    """None: those of all hosts."""
    text: str = ""
    """A part of their URLs; empty: any."""
    ignore_case: bool = False


def count_by_state(databases: Databases, host: str | None) -> dict[str, int]:
    """How many pages a host has, or all have: `active`, `away`, `never_crawled`, `failing`; and
    `hosts`, how many are known.

    Args:
        databases: all of them.
        host: None: all pages, which are scanned, at some millions a second.
    """
    counts = [_count_by_state(database, host) for database in _having(databases, host)]
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def _having(databases: Databases, host: str | None) -> Sequence[Database]:
    return databases.each if host is None else [databases.of_host(host)]


def _count_by_state(database: Database, host: str | None) -> dict[str, int]:
    with _asking(database.url) as connection:
        place, values = _place(connection, host)
        counts = _one(connection, f"{_COUNTS} WHERE {place}", values)
        hosts = "SELECT count(*) AS hosts FROM hosts WHERE true"
        if host is not None:
            hosts += " AND shard = %(shard)s AND host_id = %(host_id)s"
        return counts | _one(connection, hosts, values)


def list_host_names(
    databases: Databases, now: float, *, blocked_too: bool, start: int, most: int
) -> tuple[list[str], int]:
    """Hosts, and how many there are in all: those that nobody blocks now, or all that are known.

    Args:
        databases: all of them, one after the other.
        now: Unix seconds.
        blocked_too: whether those that are blocked, or asked to be left alone, count too.
        start: so many are passed over.
        most: so many at most.
    """
    order = "ORDER BY shard, host_id OFFSET %(start)s LIMIT %(most)s"
    found: list[str] = []
    total = 0
    for database in databases.each:
        values = {
            "all": blocked_too,
            "now": now,
            "start": max(start - total, 0),
            "most": most - len(found),
        }
        with _asking(database.url) as connection:
            rows = connection.execute(f"SELECT host {_HOSTS} {order}", values).fetchall()
            total += _one(connection, f"SELECT count(*) AS total {_HOSTS}", values)["total"]
        found += [host for (host,) in rows]
    return found, total


def list_pages(databases: Databases, wanted: Wanted, start: int, most: int) -> list[dict[str, Any]]:
    """Pages, in the order of the databases and of the primary key: URL, status and what was found
    so far."""
    order = "ORDER BY shard, page_id OFFSET %(start)s LIMIT %(most)s"
    found: list[dict[str, Any]] = []
    *others, last = _having(databases, wanted.host)
    for database in (*others, last):
        with _asking(database.url) as connection:
            where, values = _where(connection, wanted)
            values |= {"start": start, "most": most - len(found)}
            cursor = connection.cursor(row_factory=dict_row)
            query = f"SELECT {_COLUMNS} {_PAGES} AND {where} {order}"
            rows = cursor.execute(query, values).fetchall()
            found += rows
            if len(found) >= most:
                break
            if database != last:
                # What was passed over here is not to be passed over again.
                start = 0 if rows else start - _count(connection, wanted)
    return found


def count_pages(databases: Databases, wanted: Wanted) -> int:
    """How many pages there are."""
    total = 0
    for database in _having(databases, wanted.host):
        with _asking(database.url) as connection:
            total += _count(connection, wanted)
    return total


def _count(connection: psycopg.Connection, wanted: Wanted) -> int:
    where, values = _where(connection, wanted)
    return _one(connection, f"SELECT count(*) AS pages {_PAGES} AND {where}", values)["pages"]


def count_under(database_url: str, host: str, prefix: str, *, only_active: bool = False) -> int:
    """How many pages a host has whose URLs begin so; removed ones are none.

    Args:
        database_url: libpq URL.
        host: a URL's authority.
        prefix: how they begin; empty: all of the host.
        only_active: without those that are away.
    """
    query = f"SELECT count(*) AS pages {_UNDER[only_active]}"
    with _asking(database_url) as connection:
        return _one(connection, query, _under(connection, host, prefix))["pages"]


def urls_under(
    database_url: str, host: str, prefix: str, *, only_active: bool = False
) -> Iterator[list[str]]:
    """The URLs of those pages, in parts. No transaction is open between two parts."""
    after = -1
    with connect(database_url, "pages", autocommit=True) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        while rows := _part_under(connection, host, prefix, after, _UNDER[only_active]):
            yield [url for _, url in rows]
            after = rows[-1][0]


def _part_under(
    connection: psycopg.Connection, host: str, prefix: str, after: int, under: str
) -> list[tuple[int, str]]:
    """Page ids and URLs of the next of them, of one moment: their shard may be split meanwhile."""
    query = (
        f"SELECT page_id, url {under} AND page_id > %(after)s ORDER BY page_id LIMIT {URLS_AT_ONCE}"
    )
    with connection.transaction():
        values = _under(connection, host, prefix) | {"after": after}
        return connection.execute(query, values).fetchall()


def _under(connection: psycopg.Connection, host: str, prefix: str) -> dict[str, Any]:
    return _place(connection, host)[1] | {"prefix": prefix}


def read_page(database_url: str, page: PageIdentity) -> dict[str, Any] | None:
    """One page, as in `list_pages`; None: it is not known, or was removed."""
    query = f"SELECT {_COLUMNS} {_PAGES} AND shard = %s AND page_id = %s"
    with _asking(database_url) as connection:
        shard = read_layout(connection).shard_of(page.host)
        cursor = connection.cursor(row_factory=dict_row)
        return cursor.execute(query, (shard, page.page_id)).fetchone()


@contextmanager
def _asking(database_url: str) -> Iterator[psycopg.Connection]:
    with connect(database_url, "frontier", autocommit=True) as connection:
        connection.execute(f"SET statement_timeout = '{PATIENCE_SECONDS}s'")
        yield connection


def _one(
    connection: psycopg.Connection, query: str, values: Mapping[str, Any] | Sequence[Any]
) -> dict[str, int]:
    found = connection.cursor(row_factory=dict_row).execute(query, values).fetchone()
    return dict(found or {})


def _place(connection: psycopg.Connection, host: str | None) -> tuple[str, dict[str, Any]]:
    if host is None:
        return "true", {}
    shard = read_layout(connection).shard_of(host)
    values = {"shard": shard, "host_id": host_id_of(host)}
    return "shard = %(shard)s AND host_id = %(host_id)s", values


def _where(connection: psycopg.Connection, wanted: Wanted) -> tuple[str, dict[str, Any]]:
    place, values = _place(connection, wanted.host)
    if not wanted.text:
        return place, values
    text, url = ("lower(%(text)s)", "lower(url)") if wanted.ignore_case else ("%(text)s", "url")
    return f"{place} AND position({text} in {url}) > 0", values | {"text": wanted.text}
