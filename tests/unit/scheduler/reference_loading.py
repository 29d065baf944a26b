"""A snapshot's pages as rows, column by column and one thing after the other: what
`services.scheduler.flow.loading` does in one pass and in several threads."""

import numpy as np

from services.scheduler.state.crawls import short_digests
from services.scheduler.state.hosts import list_pages
from services.scheduler.state.learned_hosts import refresh_pages
from services.scheduler.state.packing import load_rates
from services.scheduler.state.rows import NEVER, clear, empty_rows
from shared.contracts.identity import page_id_of
from shared.policy.estimation.page_factors import activity_bin
from shared.store.directories import directory_of

FIRST_SECOND, STEPS, CHANGE_SECONDS, STAMPS = -1e9, 65_536, 160.0, 0xFFFE
LONG_AGO = 120.0 * 86_400


def url_at(urls, row):
    begin = urls.begins[row]
    return urls.arena[begin : begin + urls.lengths[row]].tobytes().decode()


def rows_of(snapshot, shard):
    """Rows, records, and the lists of hosts, of a shard that has only its hosts."""
    columns, count = snapshot.pages, snapshot.pages.page_ids.size
    tables, hosts = shard.hosts.learned.tables, shard.hosts.rows
    pages, records = empty_rows(count)
    clear(pages, records)
    pages["host"] = np.searchsorted(snapshot.hosts.host_ids, columns.host_ids)
    pages["importance"] = shard.classes.weighted(columns.importance, columns.page_class)
    records["page_class"] = columns.page_class
    pages["kappa"], pages["gamma"] = columns.signal_evidence, columns.signal_rate
    pages["signals"] = (tables.weights[pages["host"]] * snapshot.pending).sum(axis=1)
    pages["last_crawled_at"] = columns.last_crawled_at
    own, default = columns.max_age_days, shard.rules.default_max_age_days
    pages["max_age"] = np.where(np.isfinite(own), own, default) * 86_400.0
    pages["status"] = columns.status
    urls = [url_at(snapshot.urls, row) for row in range(count)]
    assert [page_id_of(url) for url in urls] == columns.page_ids.tolist()
    records["directory"] = [directory_of(url) for url in urls]
    records["activity"] = [activity_bin(signals) for signals in columns.signal_count]
    of_host = tables.alpha[pages["host"]]
    own_rates, multipliers = columns.unsignalled_change_rate, snapshot.multipliers
    load_rates(pages, records, own_rates, multipliers, of_host)
    _changes(records, columns.last_changed_at, columns.last_crawled_at)
    _updates(records, columns.updated_at)
    records["digest"] = short_digests(columns.digest)
    numbers = np.arange(count, dtype=np.int32)
    list_pages(pages, records, hosts, numbers)
    refresh_pages(pages, records, tables, numbers)
    return pages, records, hosts


def _updates(records, times):
    known = times > NEVER
    steps = np.zeros(times.size, np.int64)
    passed = np.clip(times[known] - FIRST_SECOND, 0.0, 2.0**32 - 1)
    steps[known] = (passed * STEPS).astype(np.int64) + 1
    records["updated_low"], records["updated_high"] = steps & 0xFFFF_FFFF, steps >> 32


def _changes(records, changed_at, last_crawled_at):
    changed = np.flatnonzero((changed_at > NEVER) & (last_crawled_at > NEVER))
    at = np.minimum(changed_at[changed], last_crawled_at[changed])
    stamps = 2 + np.floor(at / CHANGE_SECONDS).astype(np.int64) % STAMPS
    is_long_ago = last_crawled_at[changed] - at >= LONG_AGO
    records["change"][changed] = np.where(is_long_ago, 1, stamps)
