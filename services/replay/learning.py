"""What a crawl teaches, one page at a time and compiled; and the priors, every few days.

All estimates are the policy library's: `bursts`, `map_fit`, `host_priors` and `smoothed`.
"""

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import DEPTH, PRODUCTION, SMOOTHED, Columns
from shared.policy.compiled import compiled
from shared.policy.estimation.bursts import age_bin, burst_multiplier, update_bursts
from shared.policy.estimation.host_priors import HostPriors, fit_host_priors, host_sums
from shared.policy.estimation.map_fit import PRIOR_SIGNAL_WEIGHT, MapColumns, fit_rings_map
from shared.policy.estimation.map_kernel import fit_map_rings
from shared.policy.estimation.smoothed import PSEUDO_INTERVAL, PSEUDO_SIGNAL_WEIGHT
from shared.policy.estimation.smoothed_kernel import fit_ring_pages

REFIT_DAYS = 4.0
"""Host priors are refitted so often."""

LEAST_SIGNALS, LEAST_PRECISION = 5.0, 0.1
"""Bursts are used on hosts of which so many signals were seen, and found so often true."""

PAGES_EVERY = 3
"""Every so many refits of the priors, all crawled pages are fitted to them anew."""


@compiled
def learn_from_crawl(columns: Columns, learner: int, bursts: bool, page: int, now: float) -> None:
    """Take a crawl of `page` at day `now` into its columns: record, fit, burst bin, new state."""
    changed = columns.changed[page]
    days = now - columns.last_crawl[page]
    observed = columns.held[page]
    if learner != 0 and observed:
        host = columns.host[page]
        if bursts and columns.signals[page] == 0.0:
            update_bursts(
                columns.expected_changes,
                columns.predicted_changes,
                host,
                columns.age[page],
                columns.alpha[page],
                days,
                changed,
            )
        slot = columns.records[page] % DEPTH
        columns.intervals[page, slot] = days * columns.multiplier[page]
        columns.ring_signals[page, slot, 0] = columns.signals[page]
        columns.ring_changed[page, slot] = changed
        columns.records[page] += 1
        _fit(columns, learner, page)
        if changed:
            columns.last_change[page] = now
        if bursts:
            # The bin is kept in any case, so that the tables go on learning.
            age = age_bin(now - columns.last_change[page])
            columns.age[page] = age
            columns.multiplier[page] = 1.0
            if columns.trusts_bursts[host]:
                columns.multiplier[page] = burst_multiplier(
                    columns.expected_changes[host, age], columns.predicted_changes[host, age]
                )
    columns.held[page] = True
    columns.changed[page] = False
    columns.signals[page] = 0.0
    columns.last_crawl[page] = now


@compiled
def _fit(columns: Columns, learner: int, page: int) -> None:
    pages = np.full(1, page)
    if learner == PRODUCTION:
        fit_map_rings(
            pages,
            columns.host,
            columns.intervals,
            columns.ring_signals,
            columns.ring_changed,
            columns.records,
            columns.prior_shape,
            columns.prior_rate,
            columns.prior_precision,
            PRIOR_SIGNAL_WEIGHT,
            columns.alpha,
            columns.kappa,
            columns.shape,
        )
    elif learner == SMOOTHED:
        # The smoothed fit has no posterior shape; its standard errors may go there.
        fit_ring_pages(
            pages,
            columns.intervals,
            columns.ring_signals,
            columns.ring_changed,
            columns.records,
            PSEUDO_INTERVAL,
            PSEUDO_SIGNAL_WEIGHT,
            columns.alpha,
            columns.kappa[:, 0],
            columns.shape,
            columns.shape,
        )


def refit_priors(columns: Columns, site_of_host: NDArray[np.int64], every_page: bool) -> None:
    """Refit the host priors from all pages; with `every_page` also every page under them.

    Pages that were never crawled take what their host's prior says.
    """
    hosts = columns.prior_shape.size
    fitted = MapColumns(columns.alpha, columns.kappa, columns.shape)
    crawled = np.flatnonzero(columns.records > 0)
    if every_page:
        _fit_pages(columns, crawled, fitted)
    sums = host_sums(
        crawled,
        columns.host,
        hosts,
        *fitted,
        columns.intervals,
        columns.ring_signals,
        columns.ring_changed,
        columns.records,
    )
    priors = fit_host_priors(sums, site_of_host)
    columns.prior_shape[:] = priors.shape
    columns.prior_rate[:] = priors.rate
    columns.prior_precision[:] = priors.precision
    signalled = sums.signals[:, 0] >= LEAST_SIGNALS
    columns.trusts_bursts[:] = signalled & (priors.precision[:, 0] >= LEAST_PRECISION)
    _fit_pages(columns, np.flatnonzero(columns.records == 0), fitted)


def _fit_pages(columns: Columns, pages: NDArray[np.int64], fitted: MapColumns) -> None:
    priors = HostPriors(columns.prior_shape, columns.prior_rate, columns.prior_precision)
    fit_rings_map(
        pages,
        columns.host,
        columns.intervals,
        columns.ring_signals,
        columns.ring_changed,
        columns.records,
        priors,
        fitted,
    )
