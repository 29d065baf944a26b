"""Pages that may leave the database for good, found a part at a time while all workers run.

How long a page has been gone is not stored, so it is told from what is: it was looked at last, and
by the rhythm of such looks (`shared.rules.page_events.retry_wait`) the look before was at least so
long ago. A page that anybody has named since counts from the last look.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import psycopg

from shared.contracts.databases import Database, Databases
from shared.contracts.identity import PageIdentity, host_id_of
from shared.contracts.layout import Layout
from shared.store.connection import connect
from shared.store.layout import read_layout
from shared.store.page_status import DUPLICATE, GONE, REDIRECTED, REMOVED

URLS_AT_ONCE: Final = 5_000
"""Of a part: an estimator erases it within a second or two, among its other work."""

_LAST_WAIT: Final = (
    "least(%(first)s * power(2.0, least(misses - %(confirmed)s - 1, 60)), %(longest)s)"
)
_NAMED_AT: Final = "greatest(last_crawled_at, last_signal_at, updated_at, first_seen_at)"
_GONE_SINCE: Final = (
    f"last_attempt_at - CASE WHEN misses > %(confirmed)s "
    f"AND {_NAMED_AT} < last_attempt_at - {_LAST_WAIT} THEN {_LAST_WAIT} ELSE 0 END"
)
_OLD: Final = (
    f"((%(removed)s AND status = {REMOVED} AND updated_at <= %(before)s) "
    f"OR (%(gone)s AND status IN ({GONE}, {REDIRECTED}, {DUPLICATE}) AND {_NAMED_AT} <= %(before)s "
    f"AND {_GONE_SINCE} <= %(before)s))"
)


class Rhythm(NamedTuple):
    """Of looks at pages that are gone."""

    confirmed: int
    """So many 404s say that a page is gone; each one more is a look."""
    first: float
    """Seconds to the first look; then twice as long, ..."""
    longest: float
    """At most."""


UNKNOWN_RHYTHM: Final = Rhythm(2**15, 0.0, 0.0)
"""A page has been gone since the last look at least."""


@dataclass(frozen=True, slots=True)
class Purgeable:
    """Which pages may go."""

    before: float = 0.0
    """They were removed, or gone, before this time; Unix seconds."""
    removed: bool = True
    """Those that an operator removed."""
    gone: bool = True
    """Those that their hosts do not have any more, at that address: also what leads elsewhere, or
    says that another URL is the one to keep. What robots.txt forbids may be there, and stays."""
    host: str | None = None
    """Only those of a host."""
    any_status: bool = False
    """All of them, since whenever they are what they are."""
    rhythm: Rhythm = UNKNOWN_RHYTHM


def count_purgeable(databases: Databases, wanted: Purgeable) -> Iterator[int]:
    """How many pages may go, shard by shard."""
    for database in _having(databases, wanted):
        yield from _count_there(databases, database, wanted)


def purgeable_urls(databases: Databases, wanted: Purgeable) -> Iterator[list[str]]:
    """The URLs of pages that may go, in parts. No transaction is open between two parts."""
    for database in _having(databases, wanted):
        yield from _urls_there(databases, database, wanted)


def _having(databases: Databases, wanted: Purgeable) -> Sequence[Database]:
    return databases.each if wanted.host is None else [databases.of_host(wanted.host)]


def _count_there(databases: Databases, database: Database, wanted: Purgeable) -> Iterator[int]:
    with connect(database.url, "cli", autocommit=True) as connection:
        for shard in databases.had_by(database, _shards(read_layout(connection), wanted)):
            query = f"SELECT count(*) FROM pages_{shard} WHERE {_condition(wanted)}"
            found = connection.execute(query, _values(wanted)).fetchone()
            yield int(found[0]) if found else 0


def _urls_there(databases: Databases, database: Database, wanted: Purgeable) -> Iterator[list[str]]:
    with connect(database.url, "cli", autocommit=True) as connection:
        for shard in _shards_until_all(connection, partial(databases.had_by, database), wanted):
            query = (
                f"SELECT page_id, url FROM (SELECT page_id FROM pages_{shard} "
                f"WHERE page_id > %(after)s AND {_condition(wanted)} "
                f"ORDER BY page_id LIMIT {URLS_AT_ONCE}) AS page "
                f"JOIN page_urls_{shard} USING (page_id) ORDER BY page_id"
            )
            values = _values(wanted) | {"after": -1}
            while rows := connection.execute(query, values).fetchall():
                yield [url for _, url in rows]
                values["after"] = rows[-1][0]


def _shards_until_all(
    connection: psycopg.Connection, having: Callable[[list[int]], list[int]], wanted: Purgeable
) -> Iterator[int]:
    """The shards of a database, one after the other; one that is split meanwhile, and where its
    pages went, once more."""
    looked_at: set[tuple[int, int]] = set()
    while True:
        layout = read_layout(connection)
        places = ((s, layout.modulus_of(s)) for s in having(_shards(layout, wanted)))
        place = next((place for place in places if place not in looked_at), None)
        if place is None:
            return
        looked_at.add(place)
        yield place[0]


class Left(NamedTuple):
    """Pages that were to be erased, and are there."""

    there: int
    """In whatever state."""
    removed: int
    """Of them, those that this erasure has only removed."""


def count_left(databases: Databases, pages: Sequence[PageIdentity], erased_at: float) -> Left:
    """How many pages are there after an erasure.

    Args:
        databases: all.
        pages: that it named.
        erased_at: its time, Unix seconds.
    """
    there = removed = 0
    for database in databases.each:
        if its := [page for page in pages if databases.of_host(page.host) == database]:
            left = _count_left(database, its, erased_at)
            there, removed = there + left.there, removed + left.removed
    return Left(there, removed)


def _count_left(database: Database, pages: Sequence[PageIdentity], erased_at: float) -> Left:
    page_ids = [page.page_id for page in pages]
    with connect(database.url, "cli", autocommit=True) as connection:
        layout = read_layout(connection)
        shards = [layout.shard_of(page.host) for page in pages]
        found = connection.execute(
            f"SELECT count(*), count(*) FILTER (WHERE status = {REMOVED} AND updated_at = %s) "
            "FROM pages JOIN unnest(%s::int2[], %s::int8[]) AS asked (shard, page_id) "
            "USING (shard, page_id)",
            (erased_at, shards, page_ids),
        ).fetchone()
    return Left(*found) if found else Left(0, 0)


def _shards(layout: Layout, wanted: Purgeable) -> list[int]:
    return layout.having_hosts if wanted.host is None else [layout.shard_of(wanted.host)]


def _condition(wanted: Purgeable) -> str:
    of_host = "true" if wanted.host is None else "host_id = %(host_id)s"
    return of_host if wanted.any_status else f"{of_host} AND {_OLD}"


def _values(wanted: Purgeable) -> dict[str, Any]:
    return {
        "before": wanted.before,
        "removed": wanted.removed,
        "gone": wanted.gone,
        **wanted.rhythm._asdict(),
        "host_id": None if wanted.host is None else host_id_of(wanted.host),
    }
