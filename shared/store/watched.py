"""Watched sites, and where each of their sources stands: robots.txt, sitemaps, feeds.

Several pollers may look at them: who takes a source that is due holds it for a while, and the
others pass it by. What a poller that was killed held is taken by the next.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

ROBOTS: Final = "robots"
"""Kind of a source that has sitemaps instead of pages; so has an index."""

INDEX: Final = "index"
MOST_SOURCES: Final = 1_000
"""Of a site; the state of a full sitemap has 600 kB."""


class Site(NamedTuple):
    """A watched site."""

    site: str
    """Where it begins, a URL."""
    hosts: list[str]
    """Whose pages count."""
    include: list[str]
    exclude: list[str]


class NewSource(NamedTuple):
    """A source that was found."""

    url: str
    host: str
    """That is asked for it."""
    source: str
    """Of its signals."""
    kind: str
    """`ROBOTS`, or empty: what it is shows when it is read."""
    found_by: str
    """`robots`, `link`, `index`, `operator` or `guess`."""


class Pace(NamedTuple):
    """How soon a source is read again, and what that rests on (`shared.policy.polls`)."""

    interval_seconds: float
    by_value: bool
    """Whether a poll's value decides; else what the source brought of late."""
    worth: float
    worth_signals: float
    worth_days: float


class DueSource(NamedTuple):
    """A source that is to be read, and its site's rules."""

    url: str
    site: str
    host: str
    source: str
    kind: str
    found_by: str
    etag: str
    last_modified: str
    digest: bytes
    """Of its document, and when that is to be compared again, as the poller packs them."""
    seen: bytes
    """What its document said, as the poller packs it."""
    interval_seconds: float
    failures: int
    polled_at: float
    """Unix seconds; −infinity: never."""
    by_value: bool
    worth: float
    worth_signals: float
    worth_days: float
    hosts: list[str]
    include: list[str]
    exclude: list[str]


class Reading(NamedTuple):
    """What came of a poll."""

    kind: str
    etag: str
    last_modified: str
    digest: bytes
    seen: bytes | None
    """None: as before."""
    polled_at: float
    entries: int
    pages: int
    signals: int
    exact_signals: int
    """Those whose times are more than days."""
    delay_seconds: float
    """Of them all, from their times to the poll."""


class SourceRow(NamedTuple):
    """A source, for people."""

    url: str
    site: str
    source: str
    kind: str
    found_by: str
    entries: int
    pages: int
    signals: int
    exact_signals: int
    delay_seconds: float
    polls: int
    """Requests that it has cost, those that failed too."""
    by_value: bool
    interval_seconds: float
    next_poll_at: float
    polled_at: float
    failures: int
    reason: str
    worth: float
    """Of the pages that its polls have shown of late (`shared.policy.polls.PollRecord`)."""
    worth_signals: float
    worth_days: float
    hosts: list[str]


_DUE: Final = (
    "s.url, s.site, s.host, s.source, s.kind, s.found_by, s.etag, s.last_modified, s.digest, "
    "s.seen, s.interval_seconds, s.failures, s.polled_at, s.by_value, "
    "s.worth, s.worth_signals, s.worth_days, w.hosts, w.include, w.exclude"
)
_PACED: Final = (
    "interval_seconds = %(interval_seconds)s, by_value = %(by_value)s, worth = %(worth)s, "
    "worth_signals = %(worth_signals)s, worth_days = %(worth_days)s, polls = polls + 1, "
    "polled_at = %(polled_at)s, next_poll_at = %(polled_at)s + %(interval_seconds)s, "
    "failures = 0, reason = ''"
)
_SHOWN: Final = ", ".join(f"s.{name}" for name in SourceRow._fields[:-1])


def add_site(connection: psycopg.Connection, site: Site) -> bool:
    """Watch a site, or change its rules: then all it has is looked at anew.

    Args:
        connection: that commits by itself.
        site: which.

    Returns:
        whether it was not watched before.
    """
    with connection.transaction():
        found = connection.execute(
            "INSERT INTO watched_sites (site, hosts, include, exclude) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (site) DO UPDATE SET hosts = excluded.hosts, "
            "include = excluded.include, exclude = excluded.exclude RETURNING xmax = 0",
            site,
        ).fetchone()
        connection.execute(
            "UPDATE watched_sources SET etag = '', last_modified = '', digest = '', seen = '', "
            "polled_at = '-infinity', next_poll_at = '-infinity' WHERE site = %s",
            (site.site,),
        )
    return bool(found and found[0])


def add_sources(connection: psycopg.Connection, site: str, sources: Sequence[NewSource]) -> int:
    """Add sources of a site, as long as there is room for them; how many are new.

    Those that are there take no room of the new ones.
    """
    columns: list[list[str]] = [list(column) for column in zip(*sources, strict=True)]
    if not columns:
        return 0
    found = connection.execute(
        "INSERT INTO watched_sources (site, url, host, source, kind, found_by) SELECT %s, * "
        "FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) AS new (url) "
        "WHERE NOT EXISTS (SELECT FROM watched_sources s WHERE s.url = new.url) "
        "LIMIT greatest(0, %s - (SELECT count(*) FROM watched_sources WHERE site = %s)) "
        "ON CONFLICT (url) DO NOTHING",
        (site, *columns, MOST_SOURCES, site),
    )
    return found.rowcount


def count_left_out(connection: psycopg.Connection, sources: Sequence[NewSource]) -> int:
    """How many of these sources are not there."""
    query = "SELECT count(*) FROM watched_sources WHERE url = ANY(%s)"
    urls = {source.url for source in sources}
    found = connection.execute(query, (list(urls),)).fetchone()
    return len(urls) - (int(found[0]) if found else 0)


def sitemaps_of(connection: psycopg.Connection, site: str, source: str, index: str) -> list[str]:
    """Sitemaps of a site that are watched because this index named them, and no other of its
    source might have."""
    query = (
        "SELECT s.url FROM watched_sources s WHERE s.site = %s AND s.source = %s "
        f"AND s.found_by = '{INDEX}' AND NOT EXISTS (SELECT FROM watched_sources o "
        f"WHERE o.site = s.site AND o.source = s.source AND o.found_by <> '{INDEX}' "
        "AND o.url <> %s)"
    )
    return [url for (url,) in connection.execute(query, (site, source, index))]


def drop_sources(connection: psycopg.Connection, site: str, urls: Sequence[str]) -> None:
    """Read these sources of a site no more, and forget them."""
    query = "DELETE FROM watched_sources WHERE site = %s AND url = ANY(%s)"
    connection.execute(query, (site, list(urls)))


def remove_site(connection: psycopg.Connection, site: str) -> list[str] | None:
    """Watch a site no more; the URLs of its sources. None: it was not watched."""
    with connection.transaction():
        urls = connection.execute(
            "DELETE FROM watched_sources WHERE site = %s RETURNING url", (site,)
        ).fetchall()
        gone = connection.execute("DELETE FROM watched_sites WHERE site = %s", (site,))
    return sorted(url for (url,) in urls) if gone.rowcount else None


def list_sources(connection: psycopg.Connection, most: int | None = None) -> list[SourceRow]:
    """All sources, by site; or the first so many of them."""
    query = (
        f"SELECT {_SHOWN}, w.hosts FROM watched_sources s JOIN watched_sites w USING (site) "
        "ORDER BY s.site, s.found_by = 'index', s.url LIMIT %s"
    )
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return [SourceRow(*row) for row in cursor.execute(query, (most,)).fetchall()]


def take_due_sources(
    connection: psycopg.Connection,
    now: float,
    most: int,
    busy: Sequence[str],
    held_seconds: float,
    latest_seconds: float,
) -> list[DueSource]:
    """Take sources whose time has come, one of each host.

    Args:
        connection: that commits by itself.
        now: Unix seconds.
        most: how many are taken.
        busy: hosts that are not to be asked now.
        held_seconds: for so long nobody else takes them.
        latest_seconds: no source is put off for so long: one whose time is later was written while
            a clock was wrong, and is due.
    """
    due = "(next_poll_at <= %(now)s OR next_poll_at > %(now)s + %(latest)s)"
    query = f"""
        UPDATE watched_sources s SET next_poll_at = %(now)s + %(held)s
        FROM watched_sites w, (
            SELECT url FROM (
                SELECT DISTINCT ON (host) url, next_poll_at FROM watched_sources
                WHERE {due} AND host <> ALL(%(busy)s)
                ORDER BY host, next_poll_at, url
            ) first ORDER BY next_poll_at, url LIMIT %(most)s
        ) due
        WHERE w.site = s.site AND s.url = due.url AND {due.replace("next", "s.next")}
        RETURNING {_DUE}
    """
    values = {"now": now, "most": most, "busy": list(busy)}
    values |= {"held": held_seconds, "latest": latest_seconds}
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return [DueSource(*row) for row in cursor.execute(query, values).fetchall()]


def note_reading(connection: psycopg.Connection, url: str, reading: Reading, pace: Pace) -> None:
    """A source was read, and the broker has what came of it."""
    connection.execute(
        f"UPDATE watched_sources SET {_PACED}, kind = %(kind)s, etag = %(etag)s, "
        "last_modified = %(last_modified)s, digest = %(digest)s, seen = coalesce(%(seen)s, seen), "
        "entries = %(entries)s, pages = pages + %(pages)s, signals = signals + %(signals)s, "
        "exact_signals = exact_signals + %(exact_signals)s, "
        "delay_seconds = delay_seconds + %(delay_seconds)s WHERE url = %(url)s",
        reading._asdict() | pace._asdict() | {"url": url},
    )


def note_quiet(
    connection: psycopg.Connection,
    url: str,
    polled_at: float,
    pace: Pace,
    etag: str = "",
    last_modified: str = "",
) -> None:
    """A source says what it said before, at a time in Unix seconds; with what to ask it next."""
    connection.execute(
        f"UPDATE watched_sources SET {_PACED}, etag = %(etag)s, last_modified = %(last_modified)s "
        "WHERE url = %(url)s",
        pace._asdict()
        | {"url": url, "polled_at": polled_at, "etag": etag, "last_modified": last_modified},
    )


def note_poll_failed(
    connection: psycopg.Connection, url: str, reason: str, next_poll_at: float
) -> None:
    """A source could not be read; what is known of it stays."""
    connection.execute(
        "UPDATE watched_sources SET polls = polls + 1, failures = failures + 1, reason = %s, "
        "next_poll_at = %s WHERE url = %s",
        (reason, next_poll_at, url),
    )


def call_forward(connection: psycopg.Connection, site: str, urls: Sequence[str]) -> None:
    """These sources of a site are due now: their index says that they have changed."""
    connection.execute(
        "UPDATE watched_sources SET next_poll_at = '-infinity' "
        "WHERE site = %s AND url = ANY(%s) AND failures = 0",
        (site, list(urls)),
    )


def count_sources(connection: psycopg.Connection) -> dict[str, int]:
    """How many sources are read, and how many cannot be, at the moment."""
    found = connection.execute(
        "SELECT count(*) FILTER (WHERE failures = 0), count(*) FILTER (WHERE failures > 0) "
        "FROM watched_sources"
    ).fetchone()
    quiet, failing = found or (0, 0)
    return {"well": int(quiet), "failing": int(failing)}
