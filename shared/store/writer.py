"""Bulk statements of the one writer of page state: arrays in, never a row at a time.

All key columns come sorted by (shard, id), so that two writers cannot deadlock and the server
walks its index in order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.policy.estimation.quiet_pages import QuietPages
from shared.store.binary import Blobs, copy_bytes
from shared.store.columns import HOST_RULES
from shared.store.hosts import NO_SOURCES
from shared.units import SECONDS_PER_DAY

Column = NDArray[Any] | Blobs | list[str]

SECONDS_PER_PARTITION: Final = 28 * int(SECONDS_PER_DAY)
"""Of `observations`: four weeks."""

_PAGE_COLUMNS: Final = {
    "shard": "int2",
    "page_id": "int8",
    "importance": "float8",
    "max_age_days": "float8",
    "unsignalled_change_rate": "float8",
    "signal_evidence": "float8",
    "signal_rate": "float8",
    "last_crawled_at": "float8",
    "last_attempt_at": "float8",
    "last_changed_at": "float8",
    "last_signal_at": "float8",
    "updated_at": "float8",
    "urgent_at": "float8",
    "digest": "int8",
    "signal_count": "int8",
    "signals": "int4",
    "crawls": "int4",
    "changes": "int4",
    "failures": "int4",
    "misses": "int2",
    "status": "int2",
    "page_class": "int2",
    "history": "bytea",
    "signal_times": "bytea",
}
"""What `update_pages` writes, keys first."""

_NEW_PAGE_COLUMNS: Final = {**_PAGE_COLUMNS, "host_id": "int8", "first_seen_at": "float8"}
_KEY: Final = ("shard", "page_id")


def _unnest(columns: dict[str, str], name: str) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for kind in columns.values())
    return f"unnest({arrays}) AS {name} ({', '.join(columns)})"


_EVERY_PAGE: Final = (
    "(SELECT shard, page_id, place::int4 FROM unnest(%s::int2[], %s::int8[]) "
    "WITH ORDINALITY AS key (shard, page_id, place)) AS new"
)
"""The keys of pages, each with its place in the arrays of their other columns.

An update takes the server a fifth less than with rows that it makes of all arrays: it puts those
down one by one before it joins them, while an element is taken from where it lies.
"""


def _element(kind: str) -> str:
    """The part of a column that is a page's (see `_picked`)."""
    if kind == "bytea":
        return "substr(%s::bytea, (%s::int4[])[new.place], (%s::int4[])[new.place])"
    return f"(%s::{kind}[])[new.place]"


_PAGE_ELEMENTS: Final = {
    name: _element(kind) for name, kind in _NEW_PAGE_COLUMNS.items() if name not in _KEY
}


def _picked(columns: Iterable[str], values: dict[str, Column]) -> list[Any]:
    """What a statement takes that has the elements of these columns, and then `_EVERY_PAGE`."""
    given: list[Any] = []
    for name in (*columns, *_KEY):
        value = values[name]
        given += value.slices if isinstance(value, Blobs) else (value,)
    return given


def update_pages(connection: psycopg.Connection, values: dict[str, Column]) -> int:
    """Write the state of known pages, and return how many there were.

    Args:
        connection: of `connect_writer`.
        values: `shard`, `page_id` and every changing column of `pages`, sorted by key.
    """
    columns = [name for name in _PAGE_COLUMNS if name not in _KEY]
    assignments = ", ".join(f"{name} = {_PAGE_ELEMENTS[name]}" for name in columns)
    return connection.execute(
        f"UPDATE pages AS page SET {assignments} FROM {_EVERY_PAGE} "
        "WHERE page.shard = new.shard AND page.page_id = new.page_id",
        _picked(columns, values),
        binary=True,
    ).rowcount


def insert_pages(
    connection: psycopg.Connection, values: dict[str, Column], urls: list[str]
) -> None:
    """Add new pages and their URLs.

    Args:
        connection: of `connect_writer`.
        values: every column of `pages`, sorted by key.
        urls: canonical, in the same order.

    Raises:
        psycopg.errors.UniqueViolation: a page is there already.
    """
    connection.execute(
        f"INSERT INTO pages ({', '.join((*_PAGE_ELEMENTS, *_KEY))}) "
        f"SELECT {', '.join(_PAGE_ELEMENTS.values())}, shard, page_id FROM {_EVERY_PAGE}",
        _picked(_PAGE_ELEMENTS, values),
        binary=True,
    )
    connection.execute(
        "INSERT INTO page_urls (shard, page_id, url) "
        "SELECT * FROM unnest(%s::int2[], %s::int8[], %s::text[])",
        (values["shard"], values["page_id"], urls),
    )


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Hosts and their rules, sorted by (shard, host id)."""

    shards: NDArray[np.int16]
    host_ids: NDArray[np.int64]
    hosts: list[str]
    rules: NDArray[Any]
    """`columns.HOST_RULES`."""
    limit_updated_at: NDArray[np.float64]


_HOST_COLUMNS: Final = {
    "shard": "int2",
    "host_id": "int8",
    "host": "text",
    "max_crawls_per_second": "float8",
    "blocked_until": "float8",
    "crawl_delay": "float8",
    "asked_until": "float8",
    "failures": "int4",
    "failed_at": "float8",
    "max_open_requests": "int2",
    "named_group": "text",
    "named_since": "float8",
    "limit_updated_at": "float8",
}
_OR_NULL: Final = {
    "max_crawls_per_second": "'NaN'",
    "crawl_delay": "'NaN'",
    "max_open_requests": "0",
    "named_group": "''",
}
"""What says that there is no such rule, by the columns that have NULL for it."""

_HOST_KEY: Final = ("shard", "host_id", "host")


def _column_of(rule: NDArray[Any]) -> NDArray[Any] | list[str]:
    """A rule of hosts, as statements take it."""
    if rule.dtype.kind == "S":
        return [name.decode() for name in rule.tolist()]
    return np.ascontiguousarray(rule)


def write_hosts(connection: psycopg.Connection, limits: HostLimits) -> None:
    """Add hosts, or write the rules of known ones."""
    given = [
        f"nullif({name}, {_OR_NULL[name]})" if name in _OR_NULL else name for name in _HOST_COLUMNS
    ]
    assignments = [f"{name} = excluded.{name}" for name in _HOST_COLUMNS if name not in _HOST_KEY]
    connection.execute(
        f"INSERT INTO hosts ({', '.join(_HOST_COLUMNS)}, sources) "
        f"SELECT {', '.join(given)}, '{NO_SOURCES}' FROM {_unnest(_HOST_COLUMNS, 'new')} "
        "ORDER BY shard, host_id ON CONFLICT (shard, host_id) DO UPDATE SET "
        f"{', '.join(assignments)}",
        (
            limits.shards,
            limits.host_ids,
            limits.hosts,
            *(_column_of(limits.rules[name]) for name in HOST_RULES.names or ()),
            limits.limit_updated_at,
        ),
    )


@dataclass(frozen=True, slots=True)
class HostEstimates:
    """What was learned of hosts, sorted by (shard, host id)."""

    shards: NDArray[np.int16]
    host_ids: NDArray[np.int64]
    prior_shape: NDArray[np.float64]
    """A of the Gamma(A, B) prior of α."""
    prior_rate: NDArray[np.float64]
    """B, days."""
    prior_precision: NDArray[np.float64]
    """Of a signal of whatever source."""
    sources: list[str]
    """By `hosts.pack_sources`."""
    learning: Blobs
    """By `hosts.pack_hosts`."""
    quiet: QuietPages


def update_hosts(connection: psycopg.Connection, estimates: HostEstimates) -> int:
    """Write what was learned of known hosts, and return how many there were."""
    return connection.execute(
        "UPDATE hosts AS host SET prior_shape = new.shape, prior_rate = new.rate, "
        "prior_precision = new.precision, sources = new.sources, "
        "learning = substr(%s::bytea, new.begins, new.length), quiet_found = new.found, "
        "quiet_predicted = new.predicted, quiet_belief = new.belief "
        "FROM unnest(%s::int4[], %s::int4[], %s::int2[], %s::int8[], %s::float8[], %s::float8[], "
        "%s::float8[], %s::text[], %s::float8[], %s::float8[], %s::float8[]) "
        "AS new (begins, length, shard, host_id, shape, rate, precision, sources, found, "
        "predicted, belief) "
        "WHERE host.shard = new.shard AND host.host_id = new.host_id",
        (
            *estimates.learning.slices,
            estimates.shards,
            estimates.host_ids,
            estimates.prior_shape,
            estimates.prior_rate,
            estimates.prior_precision,
            estimates.sources,
            *estimates.quiet,
        ),
    ).rowcount


@dataclass(frozen=True, slots=True)
class RefittedFactors:
    """Factors of hosts, sorted by (shard, host id)."""

    shards: NDArray[np.int16]
    host_ids: NDArray[np.int64]
    packed: list[bytes]
    """By `host_factors.pack_factors`."""


def update_factors(connection: psycopg.Connection, refitted: RefittedFactors) -> None:
    """Write the factors of known hosts, which only refits change."""
    connection.execute(
        "UPDATE hosts AS host SET factors = new.factors "
        "FROM unnest(%s::int2[], %s::int8[], %s::bytea[]) AS new (shard, host_id, factors) "
        "WHERE host.shard = new.shard AND host.host_id = new.host_id",
        (refitted.shards, refitted.host_ids, refitted.packed),
    )


@dataclass(frozen=True, slots=True)
class Observations:
    """What crawls found, one element an observation."""

    shards: NDArray[np.int16]
    page_ids: NDArray[np.int64]
    crawled_at: NDArray[np.float64]
    interval_days: NDArray[np.float64]
    signals: NDArray[np.int32]
    changed: NDArray[np.bool_]
    staleness: NDArray[np.float32]
    """−ln P(fresh) just before the crawl, by what was known before it."""
    fresh_days: NDArray[np.float32]
    """Of the interval: for which the copy was expected to be fresh."""
    sources: NDArray[np.int16]
    """Source slots with signals in the interval, as bits."""

    @classmethod
    def none(cls) -> Self:
        """No observation."""
        return cls(
            np.empty(0, np.int16),
            np.empty(0, np.int64),
            np.empty(0),
            np.empty(0),
            np.empty(0, np.int32),
            np.empty(0, np.bool_),
            np.empty(0, np.float32),
            np.empty(0, np.float32),
            np.empty(0, np.int16),
        )


def append_observations(
    connection: psycopg.Connection, found: Observations, recorded_at: float
) -> None:
    """Append observations; the partition of `recorded_at` must be there."""
    statement = (
        "COPY observations (shard, page_id, recorded_at, crawled_at, interval_days, signals, "
        "changed, staleness, fresh_days, sources) FROM STDIN (FORMAT BINARY)"
    )
    columns = (
        found.shards,
        found.page_ids,
        np.full(found.page_ids.size, recorded_at),
        found.crawled_at,
        found.interval_days,
        found.signals,
        found.changed,
        found.staleness,
        found.fresh_days,
        found.sources,
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(copy_bytes(columns))


def ensure_observation_partition(connection: psycopg.Connection, recorded_at: float) -> int:
    """Make the partition of `observations` that holds a time; return the partition's number.

    Raises:
        psycopg.errors.LockNotAvailable: somebody has been reading the table for long; who writes to
            it waits meanwhile.
    """
    number = int(recorded_at // SECONDS_PER_PARTITION)
    with connection.transaction():
        # By a function of the tables' owner: who makes a partition must own the table.
        connection.execute(
            "SELECT freshet_add_observations(%s, %s)", (number, float(SECONDS_PER_PARTITION))
        )
    connection.commit()
    return number


def drop_observations_before(
    connection: psycopg.Connection, recorded_at: float, most: int | None = None
) -> int:
    """Drop the oldest partitions of `observations` that lie wholly before a time.

    Args:
        connection: any.
        recorded_at: clock time, Unix seconds.
        most: how many at once; None: all.

    Returns:
        how many were dropped.
    """
    oldest = int(recorded_at // SECONDS_PER_PARTITION)
    names = [
        str(row[0])
        for row in connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits "
            "WHERE inhparent = 'observations'::regclass"
        ).fetchall()
    ]
    numbers = sorted(int(name.rsplit("_", 1)[1]) for name in names)
    old = [number for number in numbers if number < oldest][:most]
    for number in old:
        connection.execute("SELECT freshet_drop_observations(%s)", (number,))
    connection.commit()
    return len(old)
