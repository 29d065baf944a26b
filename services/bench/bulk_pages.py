"""A database filled with pages of full histories, as fast as the server takes them.

The tables of a shard are made anew, without keys and in the transaction that fills them: with
`wal_level = minimal` nothing of that goes to the write-ahead log, the rows come frozen, and the
keys are built once, after them.
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from services.bench.estimator_pipeline import full_history
from shared.contracts.identity import host_id_of, page_ids_of, shard_of
from shared.runtime.settings import Settings
from shared.store.binary import copy_bytes
from shared.store.columns import host_rules
from shared.store.connection import connect_writer
from shared.store.page_status import ACTIVE, NEVER
from shared.store.partitions import FILLFACTOR, add_keys, attach, make_apart
from shared.store.writer import HostLimits, write_hosts
from shared.units import SECONDS_PER_DAY as DAY

BEGIN: Final = 1_700_000_000.0
"""Clock time of the benchmark; Unix seconds."""
PAGES_A_HOST: Final = 200

_BYTES_A_ROW: Final = 485
_BYTES_A_URL: Final = 160
"""On disk: of a page's row, without the room around it, and of its URL with the keys of both."""

_PAGES_AT_ONCE: Final = 100_000
_TABLES: Final = ("pages", "page_urls")
_SESSION: Final = (
    # Rows are made between two statements of a transaction, which takes a while.
    "SET idle_in_transaction_session_timeout = 0",
    "SET maintenance_work_mem = '512MB'",
)
_FLOATS: Final = {
    "importance": 1.0,
    "max_age_days": np.inf,
    "unsignalled_change_rate": 0.15,
    "signal_evidence": 0.5,
    "signal_rate": 0.0,
    "first_seen_at": BEGIN - 90 * DAY,
    "last_crawled_at": BEGIN - DAY,
    "last_attempt_at": BEGIN - DAY,
    "last_changed_at": BEGIN - 9 * DAY,
    "last_signal_at": NEVER,
    "updated_at": BEGIN - 90 * DAY,
    "urgent_at": NEVER,
}
_COUNTS: Final = {"signals": 0, "crawls": 16, "changes": 5, "failures": 0}
_WIDE: Final = {"digest": 0, "signal_count": 0}
_SHORT: Final = {"misses": 0, "status": ACTIVE}


def host_of(number: int) -> str:
    """Name of a host of the benchmark."""
    return f"www.host-{number}.example"


def url_of(page: int, pages_a_host: int = PAGES_A_HOST) -> str:
    """URL of a page of the benchmark."""
    host, path = divmod(page, pages_a_host)
    return f"https://{host_of(host)}/section/{path % 97}/article-{page}.html"


def bytes_on_disk(pages: int, fillfactor: int = FILLFACTOR) -> float:
    """What so many pages take when they have been written, about."""
    return pages * (_BYTES_A_ROW * 100 / fillfactor + _BYTES_A_URL)


def fill(
    settings: Settings,
    pages: int,
    filled: Callable[[int], None] = lambda _: None,
    *,
    pages_a_host: int = PAGES_A_HOST,
    processes: int = 2,
    fillfactor: int = FILLFACTOR,
) -> float:
    """Write hosts and their pages; what the tables had is gone.

    Args:
        settings: `database_url` of a database that is migrated, and its `partitions`.
        pages: how many; rounded up to whole hosts.
        filled: called with the number of pages that are there.
        pages_a_host: each host has so many.
        processes: that make and send them.
        fillfactor: percent of the disk's blocks that they fill. Above production's, more of them go
            onto a disk, and their first updates are dearer. What is written later has its room.

    Returns:
        bytes of a page's row.
    """
    count = -(-pages // pages_a_host)
    shards = np.array([shard_of(host_of(n), settings.partitions) for n in range(count)], np.int16)
    url = settings.database_url.get_secret_value()
    numbers = range(settings.partitions)
    with connect_writer(url, "bench") as connection:
        with connection.transaction():
            for shard in numbers:
                connection.execute(f"DROP TABLE {', '.join(f'{t}_{shard}' for t in _TABLES)}")
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, spawning) as pool:
            fill_shard = partial(_fill_shard, url, pages_a_host, fillfactor)
            begun = [
                pool.submit(fill_shard, shard, np.flatnonzero(shards == shard)) for shard in numbers
            ]
            there = 0
            for ended in as_completed(begun):
                there += ended.result()
                filled(there)
        with connection.transaction():
            for shard in numbers:
                for table in _TABLES:
                    attach(connection, table, shard)
        connection.autocommit = True
        connection.execute("VACUUM (ANALYZE) hosts")
        connection.execute("CHECKPOINT")
        row = connection.execute(
            "SELECT sum(pg_relation_size(inhrelid))::float8 FROM pg_inherits "
            "WHERE inhparent = 'pages'::regclass"
        ).fetchone()
    return round(float(row[0]) / pages, 1) if row else 0.0


def _fill_shard(
    database_url: str,
    pages_a_host: int,
    fillfactor: int,
    shard: int,
    hosts: NDArray[np.int64],
) -> int:
    """Make the tables of a shard, which are still to be attached; how many pages they have."""
    with connect_writer(database_url, "bench") as connection:
        for statement in _SESSION:
            connection.execute(statement)
        connection.commit()
        with connection.transaction():
            for table in _TABLES:
                make_apart(connection, table, shard)
            _leave_room(connection, shard, fillfactor)
            write_hosts(connection, _limits(shard, hosts))
            at_once = max(_PAGES_AT_ONCE // pages_a_host, 1)
            for begin in range(0, hosts.size, at_once):
                _copy_part(connection, shard, hosts[begin : begin + at_once], pages_a_host)
            for table in _TABLES:
                add_keys(connection, table, shard)
            _leave_room(connection, shard, FILLFACTOR)
        connection.autocommit = True
        for table in _TABLES:
            # Statistics, and which blocks an index alone can answer for.
            connection.execute(f"VACUUM (ANALYZE) {table}_{shard}")
    return hosts.size * pages_a_host


def _leave_room(connection: psycopg.Connection, shard: int, fillfactor: int) -> None:
    """Of all rows of a shard's pages that are written from now on."""
    connection.execute(f"ALTER TABLE pages_{shard} SET (fillfactor = {fillfactor})".encode())


def _limits(shard: int, hosts: NDArray[np.int64]) -> HostLimits:
    """Hosts that have none, in the order of their ids."""
    names = [host_of(number) for number in hosts.tolist()]
    ids = np.array([host_id_of(name) for name in names], np.int64)
    order = np.argsort(ids)
    return HostLimits(
        np.full(ids.size, shard, np.int16),
        ids[order],
        [names[place] for place in order.tolist()],
        host_rules(ids.size),
        np.full(ids.size, NEVER),
    )


def _copy_part(
    connection: psycopg.Connection, shard: int, hosts: NDArray[np.int64], pages_a_host: int
) -> None:
    """Send the pages of some hosts, and their URLs."""
    numbers = (hosts[:, np.newaxis] * pages_a_host + np.arange(pages_a_host)).reshape(-1)
    urls = [url_of(page, pages_a_host) for page in numbers.tolist()]
    page_ids = page_ids_of(urls)
    host_ids = np.array([host_id_of(host_of(number)) for number in hosts.tolist()], np.int64)
    order = np.argsort(page_ids)
    values = _values(shard, page_ids[order], np.repeat(host_ids, pages_a_host)[order])
    lines = [
        f"{shard}\t{page_id}\t{url}\n" for page_id, url in zip(page_ids.tolist(), urls, strict=True)
    ]
    _copy(
        connection,
        f"COPY pages_{shard} ({', '.join(values)}) FROM STDIN (FORMAT BINARY, FREEZE)",
        copy_bytes(list(values.values())),
    )
    _copy(
        connection,
        f"COPY page_urls_{shard} FROM STDIN (FREEZE)",
        "".join([lines[place] for place in order.tolist()]),
    )


def _copy(connection: psycopg.Connection, statement: str, rows: str | bytes) -> None:
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.write(rows)


def _values(
    shard: int, page_ids: NDArray[np.int64], host_ids: NDArray[np.int64]
) -> dict[str, NDArray[Any] | np.generic | bytes]:
    """The columns of pages that were crawled often."""
    return {
        "shard": np.int16(shard),
        "page_id": page_ids,
        "host_id": host_ids,
        **{name: np.float64(value) for name, value in _FLOATS.items()},
        **{name: np.int64(value) for name, value in _WIDE.items()},
        **{name: np.int32(value) for name, value in _COUNTS.items()},
        **{name: np.int16(value) for name, value in _SHORT.items()},
        "history": full_history(),
    }
