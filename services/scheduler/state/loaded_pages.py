"""Rows of pages as a snapshot has them: one pass over many, in any thread."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.packing import load_change, load_rates, load_update
from services.scheduler.state.rows import UNSET, Rows
from shared.policy.compiled import compiled
from shared.policy.estimation.page_factors import activity_bin
from shared.store.history import SOURCES
from shared.store.prefetch import AHEAD, prefetch
from shared.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]

_NO_ATTEMPT: Final = 0


class LoadedPages(NamedTuple):
    """What rows are made of, one element a page; each contiguous."""

    hosts: NDArray[np.int32]
    importance: Floats
    """That counts, with the weight of the page's class."""
    page_class: NDArray[np.int16]
    signal_evidence: Floats
    signal_rate: Floats
    pending: NDArray[np.uint16]
    """Signals since the last crawl, by source slot; (pages, SOURCES)."""
    last_crawled_at: Floats
    max_age_days: Floats
    """Infinite: no bound of its own."""
    status: NDArray[np.int16]
    directories: NDArray[np.uint16]
    signal_count: NDArray[np.int64]
    change_rate: Floats
    """Of its own; NaN: none."""
    multipliers: NDArray[np.float32]
    last_changed_at: Floats
    updated_at: Floats
    digests: NDArray[np.uint32]
    """As `crawls.short_digests` makes them."""


def fill_rows(
    pages: Rows,
    records: Rows,
    loaded: LoadedPages,
    host_rates: NDArray[np.float32],
    weights: NDArray[np.float32],
    default_max_age_days: float,
) -> None:
    """Fill rows that no page has had.

    Args:
        pages: the rows, and no others.
        records: theirs.
        loaded: what they are made of.
        host_rates: α of hosts.
        weights: how many usual signals one of a source is worth, by host; (hosts, SOURCES).
        default_max_age_days: of pages without a bound of their own.
    """
    _fill(pages, records, loaded, host_rates, weights, default_max_age_days)
    others = np.flatnonzero(loaded.multipliers != 1.0)
    if others.size:
        rows, of_rows = pages[others], records[others]
        own, multipliers = loaded.change_rate[others], loaded.multipliers[others]
        load_rates(rows, of_rows, own, multipliers, host_rates[rows["host"]])
        pages[others], records[others] = rows, of_rows


@compiled
def _fill(
    pages: Rows,
    records: Rows,
    loaded: LoadedPages,
    host_rates: NDArray[np.float32],
    weights: NDArray[np.float32],
    default_max_age_days: float,
) -> None:
    for row in range(pages.size):
        if row + AHEAD < pages.size:
            prefetch(host_rates, loaded.hosts[row + AHEAD])
            prefetch(weights, loaded.hosts[row + AHEAD])
        page, record = pages[row], records[row]
        host = loaded.hosts[row]
        page.importance = loaded.importance[row]
        page.kappa = loaded.signal_evidence[row]
        page.gamma = loaded.signal_rate[row]
        page.last_crawled_at = loaded.last_crawled_at[row]
        signals = np.float32(0.0)
        for slot in range(SOURCES):
            signals += weights[host, slot] * np.float32(loaded.pending[row, slot])
        page.signals = signals
        page.due_staleness = UNSET
        days = loaded.max_age_days[row]
        page.max_age = (days if np.isfinite(days) else default_max_age_days) * SECONDS_PER_DAY
        page.host = host
        page.attempt = _NO_ATTEMPT
        page.status = loaded.status[row]
        own = loaded.change_rate[row]
        page.alpha = host_rates[host] if np.isnan(own) else own
        record.burst = 0 if np.isnan(own) else 1
        load_update(record, loaded.updated_at[row])
        load_change(record, loaded.last_changed_at[row], loaded.last_crawled_at[row])
        record.digest = loaded.digests[row]
        record.directory = loaded.directories[row]
        record.activity = activity_bin(loaded.signal_count[row])
        record.page_class = loaded.page_class[row]
