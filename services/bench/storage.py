"""How much disk a page takes in PostgreSQL, and an outcome in its log and in Kafka's."""

import time
from pathlib import Path
from typing import Any, Final, LiteralString

import numpy as np
import psycopg
from numpy.typing import NDArray

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.estimator_pipeline import fill_histories
from services.bench.processor_time import usage_with_children
from services.bench.real_system import scratch_folder
from services.bench.recovery_load import import_population
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.store.connection import connect_writer
from shared.store.writer import (
    Observations,
    append_observations,
    ensure_observation_partition,
)

SHARDS: Final = 4
TABLES: Final = ("pages", "page_urls", "observations")
ROUNDS: Final = 2
"""Times that every page is updated: the second shows what updates add."""

_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::float8
FROM pg_partition_tree(%s::regclass)
"""

_KEYS: Final = """
SELECT sum(pg_indexes_size(relid))::float8
FROM (SELECT relid FROM pg_partition_tree('pages')
      UNION ALL SELECT relid FROM pg_partition_tree('page_urls')) AS tables
"""

_UPDATE: Final = (
    "UPDATE pages SET last_crawled_at = %(now)s, last_attempt_at = %(now)s, crawls = crawls + 1, "
    "history = history WHERE shard = %(shard)s AND page_id = ANY(%(ids)s)"
)
_BATCH: Final = 2_000
_COMPRESSIONS: Final = ("off", "pglz", "lz4", "zstd")


def run(pages: int, programs: str = "") -> dict[str, Any]:
    """Import generated pages, update each a few times as outcomes do, and weigh what is there.

    Their histories are full, as they are in the long run.

    Args:
        pages: how many; from 50,000 on the figures no longer depend on it.
        programs: the folder of another PostgreSQL's programs: the usual one knows neither lz4 nor
            zstd.

    Returns:
        bytes a page by table, with their keys, as imported and after its updates and an
        observation; of the keys of pages and URLs alone; of write-ahead log an update, and the
        same of each page's first one after a checkpoint by `wal_compression`, with the server's
        processor time; of a request and an outcome as JSON with its URL, before Kafka compresses
        and copies them.
    """
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(
            folder / "postgres", programs=Path(programs) if programs else None
        )
        postgres.start()
        try:
            migrate(postgres.uri, SHARDS)
            population = import_population(postgres.uri, pages, time.time(), SHARDS)
            with connect_writer(postgres.uri, "bench") as connection:
                connection.autocommit = True
                imported = _sizes(connection, pages)
            fill_histories(postgres.uri)
            with connect_writer(postgres.uri, "bench") as connection:
                connection.autocommit = True
                wal_bytes = sum(_update(connection) for _ in range(ROUNDS))
                _observe(connection)
                updated = _sizes(connection, pages)
                keys = _number(connection, _KEYS) / pages
                # Last: each round of updates takes room.
                images = _after_checkpoints(connection, pages, postgres.process_id or 0)
        finally:
            postgres.stop()
    urls = population.pages.urls[:1000]
    return {
        "pages": pages,
        "bytes_a_page_imported": imported,
        "bytes_a_page": updated,
        "bytes_of_keys_a_page": round(keys, 1),
        "wal_bytes_an_update": round(wal_bytes / (ROUNDS * pages), 1),
        "after_a_checkpoint": images,
        "request_bytes": round(float(np.mean([len(encode(_request(url))) for url in urls])), 1),
        "outcome_bytes": round(float(np.mean([len(encode(_outcome(url))) for url in urls])), 1),
    }


def _sizes(connection: psycopg.Connection, pages: int) -> dict[str, float]:
    connection.execute("VACUUM ANALYZE pages")
    sizes = {}
    for table in TABLES:
        sizes[table] = round(_number(connection, _SIZE, (table,)) / pages, 1)
    return sizes


def _number(connection: psycopg.Connection, query: LiteralString, given: Any = ()) -> float:
    row = connection.execute(query, given).fetchone()
    return float(row[0]) if row and row[0] is not None else 0.0


def _after_checkpoints(
    connection: psycopg.Connection, pages: int, server: int
) -> dict[str, dict[str, float]]:
    """What the first update of each page after a checkpoint takes, which has an image of its block
    where it is the first of that: by `wal_compression`, of those that the server knows."""
    known = connection.execute("SELECT enumvals FROM pg_settings WHERE name = 'wal_compression'")
    row = known.fetchone()
    found = {}
    for name in _COMPRESSIONS:
        if row is None or name not in (row[0] or ()):
            continue
        connection.execute("SELECT set_config('wal_compression', %s, false)", (name,))
        connection.execute("CHECKPOINT")
        used = usage_with_children(server).seconds
        written = _update(connection)
        used = usage_with_children(server).seconds - used
        found[name] = {
            "wal_bytes_an_update": round(written / pages, 1),
            "processor_us_an_update": round(1e6 * used / pages, 1),
        }
    return found


def _update(connection: psycopg.Connection) -> float:
    """Update all pages, in batches as an estimator does; returns bytes of log."""
    random = np.random.default_rng(0)
    before = _written(connection)
    for shard in range(SHARDS):
        # Any pages together, as they are crawled: few of a batch are neighbours on the disk.
        ids = random.permutation(_ids(connection, shard))
        for start in range(0, ids.size, _BATCH):
            batch = np.sort(ids[start : start + _BATCH])
            connection.execute(_UPDATE, {"now": time.time(), "shard": shard, "ids": batch})
    return _written(connection) - before


def _ids(connection: psycopg.Connection, shard: int) -> NDArray[np.int64]:
    rows = connection.execute("SELECT page_id FROM pages WHERE shard = %s", (shard,)).fetchall()
    return np.array([row[0] for row in rows], np.int64)


def _observe(connection: psycopg.Connection) -> None:
    """An observation of each page."""
    now = time.time()
    ensure_observation_partition(connection, now)
    for shard in range(SHARDS):
        ids = _ids(connection, shard)
        found = Observations(
            np.full(ids.size, shard, np.int16),
            ids,
            np.full(ids.size, now),
            np.ones(ids.size),
            np.zeros(ids.size, np.int32),
            np.zeros(ids.size, np.bool_),
            np.full(ids.size, 0.1, np.float32),
            np.full(ids.size, 0.95, np.float32),
            np.zeros(ids.size, np.int16),
        )
        append_observations(connection, found, now)


def _written(connection: psycopg.Connection) -> float:
    query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"
    return _number(connection, query)


def _request(url: str) -> CrawlRequest:
    now = time.time()
    host = url.partition("//")[2].partition("/")[0]
    number = 2**60 + 12345
    return CrawlRequest(f"{number:x}-{number:x}", number, url, host, now, now, 0.1, 0.1, "value")


def _outcome(url: str) -> CrawlOutcome:
    return CrawlOutcome(url, time.time(), "", f"{2**60:x}-{2**60:x}", "changed", None, 200)
