"""The hosts of a shard, as columns, in parts: PostgreSQL has no row of a gigabyte."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import psycopg

from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_SHAPE
from shared.policy.estimation.quiet_pages import QuietPages
from shared.store.columns import HOST_RULES, HostColumns, host_rules
from shared.store.host_factors import unpack_factors
from shared.store.hosts import INITIAL, HostLearning, unpack_hosts, unpack_sources
from shared.store.read_ahead import allow_reading_ahead, read_ahead

HOSTS_AT_ONCE: Final = 100_000
"""That are gathered in one row, some 400 bytes for each."""

_BEFORE_ALL: Final = -(1 << 63)

_GATHERED: Final = (
    "SELECT array_agg(host_id), array_agg(host), "
    "array_agg(coalesce(max_crawls_per_second, 'NaN')), array_agg(blocked_until), "
    "array_agg(coalesce(crawl_delay, 'NaN')), array_agg(asked_until), array_agg(failures), "
    "array_agg(failed_at), array_agg(coalesce(max_open_requests, 0)), "
    "array_agg(coalesce(named_group, '')), array_agg(named_since), "
    "array_agg(limit_updated_at), array_agg(coalesce(prior_shape, %s)), "
    "array_agg(coalesce(prior_rate, %s)), array_agg(sources), "
    "string_agg(coalesce(learning, %s), ''::bytea), array_agg(factors), "
    "array_agg(quiet_found), array_agg(quiet_predicted), array_agg(quiet_belief) FROM ("
    "SELECT * FROM hosts WHERE shard = %s AND host_id > %s ORDER BY host_id LIMIT %s) AS host"
)


def warm_hosts(connection: psycopg.Connection, shard: int) -> None:
    """Have the blocks of a shard's hosts in the server's memory, if they were not.

    They lie in the order in which they came, those of all shards together: who follows their key
    waits for the disk at nearly each of them. Asked for all at once they come in a tenth of that
    time, and looking at those that are there takes a hundredth of what reading them does.

    Args:
        connection: in a transaction that nobody else uses meanwhile.
        shard: which.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    with connection.transaction(force_rollback=True):  # with it, how the session reads
        allow_reading_ahead(connection)
        read_ahead(connection, is_ahead=True)
        connection.execute("SELECT count(limit_updated_at) FROM hosts WHERE shard = %s", (shard,))


def read_hosts(
    connection: psycopg.Connection, shard: int, progress: Callable[[], None] = lambda: None
) -> HostColumns:
    """What is known of the hosts of a shard.

    Args:
        connection: in a transaction that sees one moment.
        shard: which.
        progress: called for each part.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
    """
    rows = []
    for row in _parts(connection, shard):
        rows.append(row)
        progress()
    return _columns([_joined(parts) for parts in zip(*rows, strict=True)]) if rows else _none()


def _parts(connection: psycopg.Connection, shard: int) -> Iterator[tuple[Any, ...]]:
    first = INITIAL_SHAPE, INITIAL_SHAPE / INITIAL_CHANGE_RATE, INITIAL
    after = _BEFORE_ALL
    while True:
        given = (*first, shard, after, HOSTS_AT_ONCE)
        row = connection.execute(_GATHERED, given, binary=True).fetchone()
        if row is None or row[0] is None:
            return
        yield row
        if len(row[0]) < HOSTS_AT_ONCE:
            return
        after = int(row[0][-1])


def _columns(row: Sequence[Any]) -> HostColumns:
    host_ids, names = row[:2]
    rules = host_rules(len(names))
    last_rule = 2 + len(HOST_RULES.names or ())
    for name, column in zip(HOST_RULES.names or (), row[2:last_rule], strict=True):
        rules[name] = column
    limit_updated_at, shape, rate, sources, packed, factors, *quiet = row[last_rule:]
    return HostColumns(
        host_ids,
        names,
        rules,
        limit_updated_at,
        shape,
        rate,
        [unpack_sources(of_host) for of_host in sources],
        unpack_hosts(packed, len(names)),
        [unpack_factors(of_host) for of_host in factors],
        QuietPages(*quiet),
    )


def _joined(parts: Sequence[Any]) -> Any:
    """A column of several rows, which follow one another."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    if isinstance(parts[0], bytes):
        return b"".join(parts)
    return [value for part in parts for value in part]


def _none() -> HostColumns:
    nothing = np.empty(0)
    return HostColumns(
        *(np.empty(0, np.int64), [], host_rules(0), nothing, nothing, nothing),
        *([], HostLearning.initial(0), []),
        quiet=QuietPages.initial(0),
    )
