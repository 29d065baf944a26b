"""Streams of events that the poller reads: where each stands, what it costs and what it brings."""

from typing import Final, NamedTuple

import psycopg

from shared.policy.polls import kept_after


class StreamNews(NamedTuple):
    """What is new of a source since it was written down last."""

    source: str
    url: str
    """For people: without what may be secret of it."""
    read_at: float
    """Unix seconds: now."""
    failures: int
    """Connections up to the last that brought no event, in a row."""
    reason: str
    """Why the last of them did not."""
    connections: int = 0
    """That were asked for."""
    gaps: int = 0
    """Times that the server had forgotten our place."""
    bytes_read: int = 0
    events: int = 0
    bad_events: int = 0
    """Of them, those that could not be read."""
    signals: int = 0
    exact_signals: int = 0
    """Those that have a time."""
    delay_seconds: float = 0.0
    """Of them all, from their times to our reading."""
    worth: float = 0.0
    """Of the pages that were named (`shared.policy.polls.PollRecord`)."""
    worth_signals: float = 0.0
    worth_days: float = 0.0
    """In which they were; 0: they have not been valued."""


class StreamRow(NamedTuple):
    """A source of a stream, for people."""

    since: float
    """When it was asked for first, Unix seconds; infinity: not since that is noted."""
    sums: StreamNews
    """Of all that was ever new; what polls brought long ago counts less."""


_SUMMED: Final = (
    *("connections", "gaps", "bytes_read", "events", "bad_events"),
    *("signals", "exact_signals", "delay_seconds"),
)
_LEARNED: Final = ("worth", "worth_signals", "worth_days")
_SET: Final = ("url", "read_at", "failures", "reason")
_WRITTEN: Final = (*_SET, *_SUMMED, *_LEARNED)
_CHANGES: Final = (
    *(f"{name} = excluded.{name}" for name in _SET),
    *(f"{name} = s.{name} + excluded.{name}" for name in _SUMMED),
    *(f"{name} = s.{name} * %(kept)s + excluded.{name}" for name in _LEARNED),
    "cursor = coalesce(%(cursor)s, s.cursor)",
    "since = least(s.since, excluded.since)",
)
_WRITE: Final = (
    f"INSERT INTO stream_cursors AS s (source, cursor, since, {', '.join(_WRITTEN)}) "
    "VALUES (%(source)s, coalesce(%(cursor)s, ''), %(read_at)s, "
    f"{', '.join(f'%({name})s' for name in _WRITTEN)}) "
    f"ON CONFLICT (source) DO UPDATE SET {', '.join(_CHANGES)}"
)


def read_cursor(connection: psycopg.Connection, source: str) -> str:
    """What to tell a stream's server, to go on after what was read; empty: nothing was."""
    query = "SELECT cursor FROM stream_cursors WHERE source = %s"
    found = connection.execute(query, (source,)).fetchone()
    return "" if found is None else str(found[0])


def list_streams(connection: psycopg.Connection) -> list[StreamRow]:
    """All sources of streams that were ever read, by name."""
    query = f"SELECT since, {', '.join(StreamNews._fields)} FROM stream_cursors ORDER BY source"
    return [StreamRow(row[0], StreamNews(*row[1:])) for row in connection.execute(query)]


def write_streams(
    connection: psycopg.Connection, cursor: str, own: StreamNews, *others: StreamNews
) -> None:
    """Write down how far a stream is read, and what came of it: all of it or nothing.

    Args:
        connection: that commits by itself.
        cursor: where the stream stands.
        own: of the stream's own source.
        others: of sources that it has besides; nobody reads those by themselves.
    """
    with connection.transaction():
        for news, place in ((own, cursor), *((other, None) for other in others)):
            kept = kept_after(news.worth_days)
            connection.execute(_WRITE, news._asdict() | {"cursor": place, "kept": kept})
