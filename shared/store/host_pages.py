"""How many pages hosts have: counted by shard, now and then, as nothing else has an index of it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.identity import host_id_of
from shared.store.layout import read_layout
from shared.store.page_status import REMOVED

COUNTING_SECONDS: Final = 600
"""A shard's pages are looked through in less; a million rows take about a second."""

_COUNT: Final = f"""
WITH there AS (
    SELECT host_id, count(*) AS pages, count(*) FILTER (WHERE status <> {REMOVED}) AS kept
    FROM pages WHERE shard = %(shard)s GROUP BY host_id
), coming AS (
    SELECT host_id, count(*) AS pages FROM let_in_pages AS noted
    WHERE place %% %(modulus)s = %(shard)s
    AND NOT EXISTS (SELECT FROM pages WHERE shard = %(shard)s AND page_id = noted.page_id)
    GROUP BY host_id
), let_in AS (
    SELECT host_id, pages FROM let_in_hosts WHERE place %% %(modulus)s = %(shard)s
)
SELECT array_agg(host_id ORDER BY host_id), array_agg(coalesce(kept, 0) ORDER BY host_id),
       array_agg(coalesce(there.pages, 0) + coalesce(coming.pages, 0) - coalesce(let_in.pages, 0)
                 ORDER BY host_id)
FROM there FULL JOIN coming USING (host_id) FULL JOIN let_in USING (host_id)
"""
"""One statement, so all of it is as of one moment: whatever is let in later, or was by others who
are not done yet, raises `let_in_hosts.pages` above what was taken away."""


class HostPages(NamedTuple):
    """Of one host."""

    before: int
    """How many it had that `let_in_hosts` does not count (`shared.store.let_in`): those that were
    removed and are gone, too. Below 0 where some of those are erased."""
    is_known: bool
    """Whether it has one that was not removed."""


class PagesByHost(NamedTuple):
    """Of the hosts of a shard, by id, rising."""

    modulus: int
    """Those hosts were of the shard whose place is the shard modulo this."""
    host_ids: NDArray[np.int64]
    kept: NDArray[np.int64]
    """Pages that were not removed."""
    before: NDArray[np.int64]

    def of_host(self, host: str) -> HostPages | None:
        """Those of a host; None: it had none, and none was let in."""
        host_id = host_id_of(host)
        at = int(np.searchsorted(self.host_ids, host_id))
        if at == self.host_ids.size or self.host_ids[at] != host_id:
            return None
        return HostPages(int(self.before[at]), bool(self.kept[at]))


def count_pages_by_host(connection: psycopg.Connection, shard: int) -> PagesByHost:
    """Count the pages of each host of a shard that has hosts; looks through all of them."""
    connection.execute(f"SET statement_timeout = '{COUNTING_SECONDS}s'")
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        modulus = read_layout(connection).modulus_of(shard)
        values = {"shard": shard, "modulus": modulus}
        row = connection.execute(_COUNT, values, binary=True).fetchone()
    columns: Iterable[Any] = row if row is not None and row[0] is not None else ((), (), ())
    return PagesByHost(modulus, *(np.asarray(column, np.int64) for column in columns))


def hosts_there(connection: psycopg.Connection, shards_of: Mapping[str, int]) -> set[str]:
    """Those hosts that an estimator or an import has heard of; each is given with its shard."""
    by_id = {(shard, host_id_of(host)): host for host, shard in shards_of.items()}
    shards, ids = [shard for shard, _ in by_id], [host_id for _, host_id in by_id]
    rows = connection.execute(
        "SELECT hosts.shard, hosts.host_id FROM hosts "
        "JOIN unnest(%s::int2[], %s::int8[]) AS wanted (shard, host_id) "
        "ON hosts.shard = wanted.shard AND hosts.host_id = wanted.host_id",
        (shards, ids),
    ).fetchall()
    return {by_id[int(shard), int(host_id)] for shard, host_id in rows}
