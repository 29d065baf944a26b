"""What no worker has in memory of pages and hosts that are erased: deleted from outside."""

from collections.abc import Iterator
from typing import Final

import psycopg

from shared.contracts.identity import identify
from shared.store.connection import connect
from shared.store.partitions import runs_of_blocks
from shared.store.subscriptions import list_subscriptions, unwant_subscription
from shared.store.writer import SECONDS_PER_PARTITION

BLOCKS_AT_ONCE: Final = 4_096
"""Of a table that is looked through, 32 MB: a transaction each."""

_BEHIND_ALL: Final = "(4294967295,0)"
"""No row has this id, and none a higher one."""

_DELETE: Final = """
DELETE FROM observations AS found USING erased_pages AS page, deployment
WHERE found.recorded_at >= {since} AND found.recorded_at < {until}
    AND found.ctid >= %s::tid AND found.ctid < %s::tid AND page.page_id = found.page_id
    -- In a growth what was found follows its page later, and not what is erased before.
    AND page.shard %% grown_from = found.shard %% grown_from
    -- What was found of one that is there again stays.
    AND (found.crawled_at <= page.erased_at OR NOT EXISTS (
        SELECT FROM generate_series(page.shard %% grown_from, shards - 1, grown_from)
            AS family (shard)
        JOIN pages ON pages.shard = family.shard AND pages.page_id = page.page_id))
"""
"""Of one partition, by its bounds: the right to delete is one of the whole table."""


def delete_observations(database_url: str) -> int:
    """Delete what crawls found of pages that are erased.

    They have no index: all of them are looked through, once, some blocks in a transaction.

    Returns:
        how many were deleted.
    """
    deleted = 0
    with connect(database_url, "cli", autocommit=True) as connection:
        for table, begin, end in observation_runs(connection):
            number = int(table.rpartition("_")[2])
            since, until = (n * SECONDS_PER_PARTITION for n in (number, number + 1))
            statement = _DELETE.format(since=since, until=until)
            deleted += connection.execute(statement, (begin, end)).rowcount
    return deleted


def observation_runs(connection: psycopg.Connection) -> Iterator[tuple[str, str, str]]:
    """What crawls found, in runs of blocks: table, first row id, and the one that it ends before.

    What is appended meanwhile is in the last run of a table, or in none.
    """
    for table in _partitions(connection):
        runs = list(runs_of_blocks(connection, table, BLOCKS_AT_ONCE))
        for begin, end in runs:
            yield table, begin, _BEHIND_ALL if (begin, end) == runs[-1] else end


def _partitions(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits "
        "WHERE inhparent = 'observations'::regclass ORDER BY 1"
    ).fetchall()
    return [str(name) for (name,) in rows]


def watched_of_host(database_url: str, host: str) -> dict[str, list[str]]:
    """What of a host is watched: URLs of `sites`, `sources` and `subscriptions`."""
    with connect(database_url, "cli", autocommit=True) as connection:
        sites = connection.execute("SELECT site, hosts FROM watched_sites ORDER BY site").fetchall()
        sources = connection.execute("SELECT url FROM watched_sources ORDER BY url").fetchall()
        topics = [found.topic for found in list_subscriptions(connection)]
    return {
        "sites": [site for site, hosts in sites if _host(site) == host or host in hosts],
        "sources": [url for (url,) in sources if _host(url) == host],
        "subscriptions": [topic for topic in topics if _host(topic) == host],
    }


def forget_watched(database_url: str, host: str) -> None:
    """Watch nothing of a host any more; hubs are told by the receiver."""
    watched = watched_of_host(database_url, host)
    with connect(database_url, "cli") as connection:
        own = [site for site in watched["sites"] if _host(site) == host]
        connection.execute("DELETE FROM watched_sources WHERE site = ANY(%s)", (own,))
        connection.execute("DELETE FROM watched_sites WHERE site = ANY(%s)", (own,))
        connection.execute("DELETE FROM watched_sources WHERE url = ANY(%s)", (watched["sources"],))
        connection.execute(
            "UPDATE watched_sites SET hosts = array_remove(hosts, %s) WHERE %s = ANY(hosts)",
            (host, host),
        )
        for topic in watched["subscriptions"]:
            unwant_subscription(connection, topic)


def _host(url: str) -> str:
    return identify(url).host
