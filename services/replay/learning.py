"""What signals and crawls teach, one page at a time and compiled; and the priors, every few days.

All estimates are the policy library's: `bursts`, `map_fit`, `host_priors` and `smoothed`.
"""

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import KNOWN, PRODUCTION, SMOOTHED, Columns, Hosts
from shared.policy.compiled import compiled
from shared.policy.estimation.bursts import age_bin, burst_multiplier, trusts_bursts, update_bursts
from shared.policy.estimation.host_priors import HostPriors, fit_host_priors, host_sums
from shared.policy.estimation.map_fit import PRIOR_SIGNAL_WEIGHT, MapColumns, fit_rings_map
from shared.policy.estimation.map_kernel import fit_map_rings
from shared.policy.estimation.smoothed import (
    PSEUDO_DAYS,
    PSEUDO_INTERVAL,
    PSEUDO_SIGNAL_WEIGHT,
    PSEUDO_SIGNALS,
)
from shared.policy.estimation.smoothed_kernel import fit_ring_pages
from shared.policy.estimation.sources import (
    effective_signal_evidence,
    page_evidence,
    usual_mix,
)
from shared.store.history import DEPTH

REFIT_DAYS = 4.0
"""Host priors are refitted so often at least."""

FIRST_RECORDS = 100
"""Crawls at which they are refitted first; then each time that they have doubled."""


@compiled
def take_signal(
    columns: Columns,
    hosts: Hosts,
    learner: int,
    delay_days: float,
    row: int,
    slot: int,
    day: float,
) -> None:
    """Take a signal of page `row` in, from the source in `slot`.

    One within `delay_days` of the last crawl is about what that saw. As in production, two at the
    same time are one.
    """
    page = columns.pages[row]
    if learner == PRODUCTION and day <= page.last_signal:
        return
    page.last_signal = day
    page.all_signals += 1.0
    is_news = day > page.last_crawl + delay_days or not page.held
    if learner == KNOWN:
        if is_news:
            page.signals += 1.0
        return
    columns.totals[row, slot] += 1.0
    hosts.signals[page.host, slot] += 1.0
    if is_news:
        page.signals += hosts.weights[page.host, slot]
        columns.pending[row, slot] += 1.0
    # One page of estimation.smoothed.signal_rates, as the estimator worker calls it.
    page.gamma = (page.all_signals + PSEUDO_SIGNALS) / (day - page.born + PSEUDO_DAYS)
    if learner == PRODUCTION and columns.records[row] > 0:
        page.kappa = page_evidence(
            columns.totals[row], hosts.signals[page.host], columns.kappa[row]
        )


@compiled
def learn_from_crawl(
    columns: Columns, hosts: Hosts, learner: int, bursts: bool, row: int, now: float
) -> None:
    """Take a crawl of page `row` at day `now` in: record, fit, burst bin, new state."""
    page = columns.pages[row]
    changed, days = page.changed, now - page.last_crawl
    if learner != KNOWN and page.held:
        host = page.host
        if bursts and page.signals == 0.0:
            update_bursts(
                hosts.expected_changes,
                hosts.predicted_changes,
                host,
                page.age,
                columns.alpha[row],
                days,
                changed,
            )
        slot = columns.records[row] % DEPTH
        columns.intervals[row, slot] = days * page.multiplier
        columns.ring_signals[row, slot] = columns.pending[row]
        columns.ring_changed[row, slot] = changed
        columns.records[row] += 1
        _fit(columns, hosts, learner, row)
        if changed:
            page.last_change = now
        page.age = age_bin(now - page.last_change)
        page.multiplier = 1.0
        if bursts and trusts_bursts(hosts.signals[host], hosts.precision[host]):
            page.multiplier = burst_multiplier(
                hosts.expected_changes[host, page.age], hosts.predicted_changes[host, page.age]
            )
        page.rate = columns.alpha[row] * page.multiplier
        if learner == PRODUCTION:
            page.kappa = page_evidence(columns.totals[row], hosts.signals[host], columns.kappa[row])
        else:
            page.kappa = columns.kappa[row, 0]
    page.held = True
    page.changed = False
    page.signals = 0.0
    columns.pending[row] = 0.0
    page.last_crawl = now


@compiled
def _fit(columns: Columns, hosts: Hosts, learner: int, row: int) -> None:
    pages = np.full(1, row)
    if learner == PRODUCTION:
        fit_map_rings(
            pages,
            columns.host,
            columns.intervals,
            columns.ring_signals,
            columns.ring_changed,
            columns.records,
            hosts.prior_shape,
            hosts.prior_rate,
            hosts.precision,
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


def refit_priors(columns: Columns, hosts: Hosts, site_of_host: NDArray[np.int64]) -> None:
    """Refit the host priors from all pages, and every page under them.

    Pages that were never crawled take what their host's prior says.
    """
    fitted = MapColumns(columns.alpha, columns.kappa, columns.shape)
    crawled = np.flatnonzero(columns.records > 0)
    sums = host_sums(
        crawled,
        columns.host,
        hosts.prior_shape.size,
        *fitted,
        columns.intervals,
        columns.ring_signals,
        columns.ring_changed,
        columns.records,
        HostPriors(hosts.prior_shape, hosts.prior_rate, hosts.precision),
    )
    priors = fit_host_priors(sums, site_of_host)
    hosts.prior_shape[:] = priors.shape
    hosts.prior_rate[:] = priors.rate
    hosts.precision[:] = priors.precision
    usual = usual_mix(hosts.signals)
    evidence = source_evidence(hosts)
    mean_evidence = effective_signal_evidence(usual, evidence)
    hosts.evidence[:] = mean_evidence
    hosts.weights[:] = evidence / mean_evidence[:, np.newaxis]
    _fit_pages(columns, hosts, np.arange(columns.records.size), fitted)
    own = columns.totals
    mix = np.where(own.sum(axis=1, keepdims=True) > 0, own, usual[columns.host])
    of_page = effective_signal_evidence(mix, columns.kappa)
    columns.pages["kappa"] = np.where(columns.records > 0, of_page, mean_evidence[columns.host])
    columns.pages["rate"] = columns.alpha * columns.pages["multiplier"]


def source_evidence(hosts: Hosts) -> NDArray[np.float64]:
    """κ of each source slot under the host priors, (hosts, SOURCES)."""
    return np.asarray(-np.log1p(-hosts.precision))


def _fit_pages(
    columns: Columns, hosts: Hosts, pages: NDArray[np.int64], fitted: MapColumns
) -> None:
    priors = HostPriors(hosts.prior_shape, hosts.prior_rate, hosts.precision)
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
