"""The rules of hosts, as people ask for them."""

from collections.abc import Iterator
from typing import Any, Final

from psycopg.rows import dict_row

from shared.contracts.identity import host_id_of
from shared.store.connection import WORKING, Limits, connect
from shared.store.layout import read_layout

_COLUMNS: Final = """
SELECT host, shard, coalesce(max_crawls_per_second, 'NaN') AS max_crawls_per_second, blocked_until,
       coalesce(crawl_delay, 'NaN') AS crawl_delay, asked_until, failures, failed_at,
       coalesce(max_open_requests, 0) AS max_open_requests, named_group, named_since,
       limit_updated_at
FROM hosts
"""
_ONE: Final = f"{_COLUMNS} WHERE shard = %s AND host_id = %s"
_WITH_RULES: Final = f"""{_COLUMNS}
WHERE max_crawls_per_second IS NOT NULL OR crawl_delay > 0 OR blocked_until > %(now)s
      OR asked_until > %(now)s OR failures >= %(patience)s OR max_open_requests > 0
ORDER BY host LIMIT %(most)s
"""

_HOSTS_AT_ONCE: Final = 10_000
_RULED: Final = f"{_COLUMNS} WHERE limit_updated_at > '-infinity'"


def read_host(database_url: str, host: str, limits: Limits = WORKING) -> dict[str, Any] | None:
    """A host's columns; None: no estimator has heard of it."""
    with connect(database_url, "hosts", limits=limits) as connection:
        shard = read_layout(connection).shard_of(host)
        cursor = connection.cursor(row_factory=dict_row)
        return cursor.execute(_ONE, (shard, host_id_of(host))).fetchone()


def list_hosts(
    database_url: str, now: float, patience: int, most: int, limits: Limits = WORKING
) -> list[dict[str, Any]]:
    """The columns of hosts that a rule binds now, by name.

    Args:
        database_url: libpq URL.
        now: Unix seconds.
        patience: failures in a row from which on a host is backed off from.
        most: so many at most.
        limits: of the session.
    """
    terms = {"now": now, "patience": patience, "most": most}
    with connect(database_url, "hosts", limits=limits) as connection:
        return connection.cursor(row_factory=dict_row).execute(_WITH_RULES, terms).fetchall()


def ruled_hosts(database_url: str) -> Iterator[dict[str, Any]]:
    """The columns of all hosts of which `host-limits` has ever said anything."""
    with (
        connect(database_url, "hosts") as connection,
        connection.cursor("ruled_hosts", row_factory=dict_row) as cursor,
    ):
        cursor.itersize = _HOSTS_AT_ONCE
        yield from cursor.execute(_RULED)
