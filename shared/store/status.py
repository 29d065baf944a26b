"""How many pages and hosts there are, and how far the streams were applied."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from shared.contracts.databases import Database, Databases
from shared.store.asking_all import ask_all
from shared.store.connection import connect
from shared.store.page_status import ACTIVE, AWAY, REMOVED, STATUS_NAMES

_BY_STATUS = ",\n       ".join(
    f"count(*) FILTER (WHERE status = {status}) AS {STATUS_NAMES[status]}"
    for status in (ACTIVE, REMOVED, *AWAY)
)

_PAGES = f"""
SELECT {_BY_STATUS},
       count(*) FILTER (WHERE status = {ACTIVE} AND last_crawled_at = '-infinity') AS never_crawled,
       count(*) FILTER (WHERE status = {ACTIVE} AND failures > 0) AS failing,
       coalesce(sum(crawls), 0)::int8 AS crawls,
       coalesce(sum(changes), 0)::int8 AS changes,
       coalesce(sum(signal_count), 0)::int8 AS signals
FROM pages
"""

_MAX_AGES = f"""
SELECT max_age_days, count(*) AS pages FROM pages
WHERE status = {ACTIVE} GROUP BY max_age_days
"""

_HOSTS = """
SELECT count(*) AS known,
       count(*) FILTER (WHERE greatest(blocked_until, asked_until) > %s) AS blocked,
       count(*) FILTER (WHERE max_crawls_per_second IS NOT NULL) AS with_own_limit
FROM hosts
"""


def stores_status(databases: Databases, now: float) -> tuple[dict[str, Any], dict[Database, str]]:
    """`store_status` of all databases together.

    Args:
        databases: of several, one that is away is left out of the sums; so is one without tables,
            with other shards than the settings say, or that this user may not read.
        now: clock time, Unix seconds.

    Returns:
        as `store_status`; of several, also `databases`, one each: the `shards` that it has, its
        `active` pages, `bytes`, and why it is `away` (None: it is not). Then those
        that are away, and why.

    Raises:
        psycopg.Error: the only database, or each of them, is away or refuses.
        StoreMismatch: each of several has no tables, or other shards.
    """
    found, away = ask_all(databases, "status", lambda one: store_status(one.url, now))
    if not databases.are_several:
        return found[databases.home], away
    each = [
        {
            "shards": database.held,
            "active": found[database]["pages"]["active"] if database in found else None,
            "bytes": found[database]["bytes"] if database in found else None,
            "away": away.get(database),
        }
        for database in databases.each
    ]
    return _together(list(found.values())) | {"databases": each}, away


def _together(some: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of what each database says."""
    positions: dict[str, dict[str, int]] = {}
    for one in some:
        for consumer, topics in one["positions"].items():
            positions[consumer] = _sums([positions.get(consumer, {}), topics])
    shards = [one["shards"] for one in some if one["shards"] is not None]
    return {
        # Not yet in all of them, where a growth has just begun.
        "shards": max(shards, default=None),
        **{name: _sums([one[name] for one in some]) for name in ("pages", "max_ages", "hosts")},
        "positions": positions,
        "bytes": sum(one["bytes"] or 0 for one in some),
    }


def _sums(some: Sequence[dict[Any, int]]) -> dict[Any, int]:
    names = dict.fromkeys(name for one in some for name in one)
    return {name: sum(one.get(name, 0) for one in some) for name in names}


def store_status(database_url: str, now: float) -> dict[str, Any]:
    """Counts over a whole database; it is scanned, at some millions of pages a second.

    Args:
        database_url: libpq URL.
        now: clock time, Unix seconds, to tell which hosts are blocked.

    Returns:
        `shards`, `pages` (by status, and sums of crawls, changes and signals), `hosts`, `max_ages`
        (days → active pages; infinite: no bound of their own), `positions` (consumer → topic → sum
        of next offsets), `bytes`.
    """
    with (
        connect(database_url, "status") as connection,
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        deployment = cursor.execute("SELECT shards FROM deployment").fetchone() or {}
        pages = cursor.execute(_PAGES).fetchone()
        max_ages = {
            row["max_age_days"]: row["pages"] for row in cursor.execute(_MAX_AGES).fetchall()
        }
        hosts = cursor.execute(_HOSTS, (now,)).fetchone()
        size = cursor.execute("SELECT pg_database_size(current_database()) AS bytes").fetchone()
        positions: dict[str, dict[str, int]] = {}
        for row in cursor.execute(
            "SELECT consumer, topic, sum(next_offset)::int8 AS applied FROM stream_positions "
            "GROUP BY consumer, topic ORDER BY consumer, topic"
        ):
            positions.setdefault(row["consumer"], {})[row["topic"]] = row["applied"]
    return {
        "shards": deployment.get("shards"),
        "pages": pages,
        "max_ages": max_ages,
        "hosts": hosts,
        "positions": positions,
        "bytes": (size or {}).get("bytes"),
    }


def count_by_shard(connection: psycopg.Connection) -> dict[int, int]:
    """Shard → its pages, of any status; shards without pages are not there. It is scanned."""
    return dict(connection.execute("SELECT shard, count(*) FROM pages GROUP BY shard").fetchall())
