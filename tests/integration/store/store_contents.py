"""What the tests of the store fill it with."""

import numpy as np
from page_batches import page_batch

from shared.contracts.identity import shard_of
from shared.store.history import Rings, pack
from shared.store.imports import import_pages
from shared.store.source_times import SourceTimes, pack_source_times

SHARDS = 3
NOW = 1_700_000_000.0
FLOATS = (
    "importance",
    "max_age_days",
    "unsignalled_change_rate",
    "signal_evidence",
    "signal_rate",
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
    "urgent_at",
)


def urls_of_shard(shard, count, shards=SHARDS):
    hosts = (f"host-{number}.example" for number in range(10_000))
    right = [host for host in hosts if shard_of(host, shards) == shard][:5]
    return [f"https://{right[n % 5]}/page/{n}" for n in range(count)]


def fill(url, urls, **columns):
    return import_pages(url, SHARDS, [page_batch(urls, **columns)], now=NOW)


def urls_of(snapshot):
    """The URLs of a snapshot's pages, in their order."""
    arena, begins, lengths, _ = snapshot.urls
    rows = range(snapshot.pages.page_ids.size)
    return [bytes(arena[begins[row] : begins[row] + lengths[row]]).decode() for row in rows]


def changed_columns(snapshot, rows, status=0, records=0):
    """Columns for `update_pages` with values that tell them apart."""
    count = rows.size
    rings = Rings.empty(count)
    rings.interval_days[:] = 1.5 + np.arange(count)[:, np.newaxis]
    rings.seen[:] = records
    columns = {"shard": np.full(count, snapshot.shard, np.int16)}
    columns["page_id"] = snapshot.pages.page_ids[rows]
    columns["status"] = np.full(count, status, np.int16)
    columns["history"] = pack(rings, np.arange(count))
    columns["signal_times"] = pack_source_times(SourceTimes().ages, np.zeros(count, np.int32))
    for number, name in enumerate(FLOATS):
        columns[name] = np.arange(count) + number * 1000.0
    for name in ("digest", "signal_count"):
        columns[name] = np.arange(count, dtype=np.int64) << 32
    for name in ("signals", "crawls", "changes", "failures"):
        columns[name] = np.arange(count, dtype=np.int32)
    columns["misses"] = np.arange(count, dtype=np.int16)
    columns["page_class"] = np.arange(count, dtype=np.int16) % 2
    return columns
