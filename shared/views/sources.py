"""Watched sitemaps, feeds and streams of events: what each costs, and what it brings."""

import math
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from shared.policy.polls import PollRecord, staleness_saved
from shared.runtime.settings import Settings
from shared.store.ping_accounts import read_delays
from shared.store.source_records import (
    Sender,
    SourceRecord,
    read_records,
    read_senders,
)
from shared.store.stream_cursors import StreamRow, list_streams
from shared.store.watched import SourceRow, list_sources
from shared.units import SECONDS_PER_DAY

HOSTS_OF_STREAMS: Final = 20_000
"""So many hosts are looked at for those that a stream says most of."""

HOSTS_OF_SOURCE: Final = 3
"""Of so many hosts that a source says most of it is told which share of changes it announced."""

LEAST_DAYS: Final = 1.0 / 24.0
"""What was read for less has no figures by the day."""


def sources(
    connection: psycopg.Connection,
    settings: Settings,
    most: int | None = None,
    seconds: float = math.inf,
) -> list[dict[str, Any]]:
    """All watched sources, by site.

    Args:
        connection: to the database.
        settings: of the deployment; the poller's say what a poll costs.
        most: the first so many of them; None: all.
        seconds: of the wall; what is learned is left out for sites that would come later.

    Returns:
        for each `site`, `url`, `kind`, `found_by`, `source`, `entries`, `bad_entries`, `pages`,
        `signals`, `precision`, `recall`, `delay_seconds`, `staleness_saved` (pages of importance
        one), `cost_crawls_a_day`, `bytes_a_day`, `every_seconds`, `by_value`, `polls`, `gaps`,
        `read_at` (Unix seconds), `failures` and `reason`. None: not known, or there is no such
        thing.

    Raises:
        psycopg.Error: the database is away, or refuses.
    """
    rows = list_sources(connection, most)
    until, now = time.monotonic() + seconds, settings.clock().now()
    learned: dict[str, dict[str, SourceRecord]] = {}
    for row in rows:
        if row.site not in learned:
            is_late = time.monotonic() > until
            learned[row.site] = {} if is_late else read_records(connection, row.hosts, now)
    return [_described(row, learned[row.site], settings) for row in rows]


def streams(
    connection: psycopg.Connection, settings: Settings, seconds: float = math.inf
) -> list[dict[str, Any]]:
    """All streams of events that were ever read, by source; as `sources`.

    `entries` are its events, `bad_entries` those that could not be read, and `polls` its
    connections, which are its cost. Recall is of the hosts that it says most of. A source that a
    stream has besides (edits by bots) costs nothing more.

    Args:
        connection: to the database.
        settings: of the deployment; the poller's say what a request costs.
        seconds: of the wall; what is learned is left out for streams that would come later.

    Raises:
        psycopg.Error: the database is away, or refuses.
    """
    rows = list_streams(connection)
    until, now = time.monotonic() + seconds, settings.clock().now()
    known = read_senders(connection, HOSTS_OF_STREAMS, HOSTS_OF_SOURCE) if rows else {}
    found = []
    for row in rows:
        sender = known.get(row.sums.source)
        precision = None if sender is None else sender.precision
        recall = _recall(connection, row.sums.source, sender, until, now)
        found.append(_stream(row, precision, recall, settings))
    return found


def senders(
    connection: psycopg.Connection,
    settings: Settings,
    most: int,
    shown: int | None = None,
    seconds: float = math.inf,
) -> list[dict[str, Any]]:
    """Everybody who sends signals, whether or not anything is watched: the busiest first.

    Args:
        connection: to the database.
        settings: of the deployment.
        most: hosts that are looked at.
        shown: the first so many senders; None: all.
        seconds: of the wall; recall is left out for senders that would come later.

    Returns:
        for each `source`, `is_stream`, `hosts`, `signals`, `precision`, `recall`, which is of the
        hosts that it says most of, and `delay_seconds`. None: not known; nobody notes how late
        those are who write to the broker themselves.

    Raises:
        psycopg.Error: the database is away, or refuses.
    """
    until, now = time.monotonic() + seconds, settings.clock().now()
    streams = {row.sums.source for row in list_streams(connection)}
    delays = read_delays(connection)
    found = read_senders(connection, most, HOSTS_OF_SOURCE)
    return [
        {
            "source": name,
            "is_stream": name in streams,
            "hosts": sender.hosts,
            "signals": sender.signals,
            "precision": sender.precision,
            "recall": _recall(connection, name, sender, until, now),
            "delay_seconds": delays.get(name),
        }
        for name, sender in sorted(found.items(), key=lambda one: (-one[1].signals, one[0]))[:shown]
    ]


def _recall(
    connection: psycopg.Connection, source: str, sender: Sender | None, until: float, now: float
) -> float | None:
    """The recall of a source over its busiest hosts; None: not known, or it is too late to ask."""
    if sender is None or time.monotonic() > until:
        return None
    record = read_records(connection, sender.busiest, now).get(source)
    return None if record is None else record.recall


def _described(
    row: SourceRow, learned: Mapping[str, SourceRecord], settings: Settings
) -> dict[str, Any]:
    record = learned.get(row.source)
    every = row.interval_seconds or None
    return {
        "site": row.site,
        "url": row.url,
        "kind": row.kind or "not read yet",
        "found_by": row.found_by,
        "source": row.source,
        "entries": row.entries,
        "bad_entries": None,
        "pages": row.pages,
        "signals": row.signals,
        "precision": None if record is None else record.precision,
        "recall": None if record is None else record.recall,
        "delay_seconds": row.delay_seconds / row.exact_signals if row.exact_signals else None,
        "staleness_saved": _saved(row, settings.poller_longest_seconds),
        "cost_crawls_a_day": None
        if every is None
        else settings.poller_poll_crawls * SECONDS_PER_DAY / every,
        "bytes_a_day": None,
        "every_seconds": every,
        "by_value": row.by_value,
        "polls": row.polls,
        "gaps": None,
        "read_at": row.polled_at if math.isfinite(row.polled_at) else None,
        "failures": row.failures,
        "reason": row.reason,
    }


def _stream(
    row: StreamRow, precision: float | None, recall: float | None, settings: Settings
) -> dict[str, Any]:
    sums = row.sums
    days = (sums.read_at - row.since) / SECONDS_PER_DAY
    is_watched = days >= LEAST_DAYS
    delay = sums.delay_seconds / sums.exact_signals if sums.exact_signals else None
    saved = None
    if sums.worth_days > 0.0:
        record = PollRecord(sums.worth, sums.worth_signals, sums.worth_days)
        # What is known d days late is known as if it was polled every 2d, which is late by d.
        late = 2.0 * (delay or 0.0) / SECONDS_PER_DAY
        saved = staleness_saved(record, late, settings.poller_longest_seconds / SECONDS_PER_DAY)
    return {
        "site": None,
        "url": sums.url,
        "kind": "stream",
        "found_by": "settings",
        "source": sums.source,
        "entries": sums.events,
        "bad_entries": sums.bad_events,
        "pages": 0,
        "signals": sums.signals,
        "precision": precision,
        "recall": recall,
        "delay_seconds": delay,
        "staleness_saved": saved,
        "cost_crawls_a_day": settings.poller_poll_crawls * sums.connections / days
        if is_watched
        else None,
        "bytes_a_day": sums.bytes_read / days if is_watched else None,
        "every_seconds": None,
        "by_value": False,
        "polls": sums.connections,
        "gaps": sums.gaps,
        "read_at": sums.read_at if math.isfinite(sums.read_at) else None,
        "failures": sums.failures,
        "reason": sums.reason,
    }


def _saved(row: SourceRow, longest: float) -> float | None:
    """None: its polls have not been valued yet."""
    if not row.worth_days > 0.0:
        return None
    record = PollRecord(row.worth, row.worth_signals, row.worth_days)
    every, rarest = row.interval_seconds / SECONDS_PER_DAY, longest / SECONDS_PER_DAY
    return staleness_saved(record, every, rarest)
