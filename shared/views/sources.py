"""Watched sitemaps and feeds: what each costs, and what it brings."""

import math
import time
from collections.abc import Mapping
from typing import Any

import psycopg

from shared.policy.polls import PollRecord, staleness_saved
from shared.runtime.settings import Settings
from shared.store.source_records import SourceRecord, read_records, read_senders
from shared.store.stream_cursors import list_streams
from shared.store.watched import SourceRow, list_sources
from shared.units import SECONDS_PER_DAY


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
        for each `site`, `url`, `kind`, `found_by`, `source`, `entries`, `pages`, `signals`,
        `precision`, `recall`, `delay_seconds`, `staleness_saved` (pages of importance one),
        `cost_crawls_a_day`, `every_seconds`, `by_value`, `polls`, `failures` and `reason`. None:
        not known.

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


def senders(connection: psycopg.Connection, most: int) -> list[dict[str, Any]]:
    """Everybody who sends signals, whether or not anything is watched: the busiest first.

    Args:
        connection: to the database.
        most: hosts that are looked at.

    Returns:
        for each `source`, `is_stream`, `hosts`, `signals` and `precision`.

    Raises:
        psycopg.Error: the database is away, or refuses.
    """
    streams, found = list_streams(connection), read_senders(connection, most)
    return [
        {"source": name, "is_stream": name in streams, **sender._asdict()}
        for name, sender in sorted(found.items(), key=lambda item: (-item[1].signals, item[0]))
    ]


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
        "pages": row.pages,
        "signals": row.signals,
        "precision": None if record is None else record.precision,
        "recall": None if record is None else record.recall,
        "delay_seconds": row.delay_seconds / row.exact_signals if row.exact_signals else None,
        "staleness_saved": _saved(row, settings.poller_longest_seconds),
        "cost_crawls_a_day": None
        if every is None
        else settings.poller_poll_crawls * SECONDS_PER_DAY / every,
        "every_seconds": every,
        "by_value": row.by_value,
        "polls": row.polls,
        "failures": row.failures,
        "reason": row.reason,
    }


def _saved(row: SourceRow, longest: float) -> float | None:
    """None: its polls have not been valued yet."""
    if not row.worth_days > 0.0:
        return None
    record = PollRecord(row.worth, row.worth_signals, row.worth_days)
    every, rarest = row.interval_seconds / SECONDS_PER_DAY, longest / SECONDS_PER_DAY
    return staleness_saved(record, every, rarest)
