"""Everything the database knows of one page, for people to read."""

import math
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import dict_row

from shared.contracts.identity import PageIdentity, host_id_of, identify
from shared.policy.estimation.page_factors import activity_bin
from shared.store.connection import WORKING, Limits, connect
from shared.store.directories import directory_of
from shared.store.history import records_of
from shared.store.host_factors import NONE, HostFactors, unpack_factors
from shared.store.layout import read_layout
from shared.store.page_status import REMOVED, STATUS_NAMES
from shared.store.unanswered import Silence, read_silence
from shared.units import SECONDS_PER_DAY

_PAGE = """
SELECT page.*, url, change_rate, precision, recall, false_signal_rate, signal_time_equivalent,
       estimate.unsignalled_change_rate, estimate.signal_evidence, estimate.class
FROM pages AS page
JOIN page_urls USING (shard, page_id)
JOIN page_estimates AS estimate USING (shard, page_id)
WHERE shard = %s AND page_id = %s
"""

_HOST = """
SELECT host, max_crawls_per_second, blocked_until, crawl_delay, asked_until, failures, failed_at,
       max_open_requests, named_group, limit_updated_at, quiet_belief, factors
FROM hosts WHERE shard = %s AND host_id = %s
"""

_PARAMETERS = (
    "change_rate",
    "unsignalled_change_rate",
    "signal_time_equivalent",
    "signal_evidence",
    "signal_rate",
    "precision",
    "recall",
    "false_signal_rate",
)

_STATE = (
    "importance",
    "class",
    "max_age_days",
    "first_seen_at",
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
    "urgent_at",
    "signals",
    "signal_count",
    "crawls",
    "changes",
    "failures",
    "misses",
)


def explain_page(database_url: str, url: str, limits: Limits = WORKING) -> dict[str, Any] | None:
    """All about a page; None where it is not known.

    Args:
        database_url: libpq URL.
        url: of the page, canonical or not.
        limits: of the session.

    Returns:
        `url`, `page_id`, `shard`, `status`, `state` (rates per day, times in Unix seconds, None
        for never and for no bound; `unanswered` requests in a row, and since when), `parameters`
        (β is None where it is infinite), `host` and `crawls`: the last crawl records, the newest
        first, with `crawled_at`, `interval_days`, `signals` and `changed`.

    Raises:
        BadUrl: not a URL that Freshet takes.
    """
    page = identify(url)
    with connect(database_url, "explain", limits=limits) as connection:
        shard = read_layout(connection).shard_of(page.host)
        row = _row(connection, _PAGE, shard, page.page_id)
        host = _row(connection, _HOST, shard, host_id_of(page.host))
        if row is None:
            return None
        if row["status"] == REMOVED:
            row["class"] = None  # its number may be another's by now
        last = max(row["last_crawled_at"], row["last_attempt_at"])
        silence = read_silence(connection, shard, page.page_id, last)
    factors = unpack_factors(host.pop("factors") if host else NONE)
    return _explanation(page, _with_factors(page, row, factors), host, silence)


def _row(
    connection: psycopg.Connection, query: str, shard: int, number: int
) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, (shard, number)).fetchone()


def _explanation(
    page: PageIdentity, row: dict[str, Any], host: dict[str, Any] | None, silence: Silence
) -> dict[str, Any]:
    return {
        "url": row["url"],
        "page_id": page.page_id,
        "shard": row["shard"],
        "status": STATUS_NAMES[row["status"]],
        "state": {name: _finite(row[name]) for name in _STATE}
        | {"unanswered": silence.requests, "unanswered_since": silence.since},
        "parameters": {name: _finite(row[name]) for name in _PARAMETERS},
        "host": {name: _finite(value) for name, value in (host or {"host": page.host}).items()},
        "crawls": _crawls(row["history"], row["last_crawled_at"]),
    }


def _with_factors(page: PageIdentity, row: dict[str, Any], factors: HostFactors) -> dict[str, Any]:
    """A page without a crawl record has its host's rate, as the view says, times these."""
    if records_of(row["history"]):
        return row
    directory = np.array([directory_of(page.url)], np.uint16)
    factor = factors.activity[activity_bin(row["signal_count"])] * factors.of(directory)[0]
    alpha = row["unsignalled_change_rate"] * float(factor)
    told = row["change_rate"] - row["unsignalled_change_rate"]
    return row | {
        "unsignalled_change_rate": alpha,
        "change_rate": alpha + told,
        "signal_time_equivalent": row["signal_evidence"] / alpha,
        "recall": told / (alpha + told),
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _crawls(history: bytes, last_crawled_at: float) -> list[dict[str, Any]]:
    """Crawl records with their times, which follow from the last one and the intervals.

    Intervals are effective days (days times the burst multiplier that held), so times before the
    last crawl are estimates; they are off too where a crawl in between left no record.
    """
    crawled_at = last_crawled_at
    crawls = []
    for record in reversed(records_of(history)):
        crawls.append({"crawled_at": crawled_at, **record})
        crawled_at -= record["interval_days"] * SECONDS_PER_DAY
    return crawls
