"""Host priors by empirical Bayes: what a page's host says about it before it has a history.

The pages of a host resemble one another, and most pages have few crawls. So each host h has a
Gamma(A_h, B_h) prior on α of its pages, and for each signal source k a Beta-shaped prior of mean
p_hk on the precision p = 1 − e^{−κ}; both are refitted every few days from the pages' own fits
(design: production estimator, point 1):

    m₁ = mean α̂_i,   ℓ = mean [ψ(a_i) − ln(a_i/α̂_i)]      (posterior means of α and of ln α)
    ln A − ψ(A) = ln m₁ − ℓ,  A in [0.3, 20]
    m = Σ E_i/(B + T_i) / Σ T_i/(B + T_i),  B ← A/m          (E changes in T days of records)
    p_h = Σ w z n p_i/(1 − e^{−s}) / Σ w n                   (expected share of true signals)

over the host's crawled pages and five pseudo-pages at the statistics of its parent. The B within m
is that of the refit before: once refits settle m is m₁, but it gets there sooner, as pages with few
crawls hold m₁ where it was. The weight w is that of a page, whose signals count as five at most
(`host_kernel.SIGNALS_OF_A_PAGE`). The parent of a host is its site if sites are given (then five
pseudo-pages at the global statistics stand behind the site), and everything otherwise. A signal
source has what the site's hosts know of the same source behind it, whatever its place at each. All
inputs are sums over pages, so shards may add them up. α̂ and a are those of `light_modes`: a page
far beyond its host's others does not speak for them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from shared.policy.estimation.first_guesses import (
    INITIAL_CHANGE_RATE,
    INITIAL_PRECISION,
    INITIAL_SHAPE,
)
from shared.policy.estimation.histories import Flags, Floats, Integers
from shared.policy.estimation.host_kernel import credit_rings, surprise_rings
from shared.policy.estimation.light_modes import light_modes
from shared.policy.estimation.map_kernel import LOWEST_PRECISION
from shared.policy.estimation.smoothed import check_rings

PSEUDO_PAGES = 5.0
"""Pages' worth of the parent's statistics that every host starts with."""

PSEUDO_SIGNALS = 1.0
"""Signals' worth of the parent's precision that every host and source starts with."""

TELL, UNDECIDED, SAY_NOTHING = 1, 0, -1
"""Verdicts on a host's source of signals."""

LEAST_PRECISION_TOLD = 0.1
"""Precision of signals below which they are as good as none."""

LEAST_SHAPE, MOST_SHAPE = 0.3, 20.0
"""Of hosts. After t quiet days α̂ is A/(A/m₁ + t): the least A says how soon quiet pages are given
up. With 0.1 in place of 0.3 staleness was worse by 0.02 of an oracle's where rates lie five decades
apart (`freshet figures estimator-wide-rates`); on a trace of real sites, by −1.5 to 0.7 %.
"""
LEAST_PRECISION, MOST_PRECISION = 0.02, 0.995


class HostPriors(NamedTuple):
    """Prior parameters by host, rows indexed by a host's number."""

    shape: Floats
    """A, shape (hosts,)."""
    rate: Floats
    """B, days, shape (hosts,)."""
    precision: Floats
    """p, mean precision of each signal source, shape (hosts, sources)."""


class HostSums(NamedTuple):
    """Sufficient statistics of the pages of each host; add those of two shards field by field.

    (Shards have whole hosts. Of a host in two halves the surplus would not add up.)
    """

    pages: Floats
    """Crawled pages, (hosts,)."""
    change_rate: Floats
    """Σ α̂, (hosts,)."""
    log_change_rate: Floats
    """Σ [ψ(a) − ln(a/α̂)], the posterior means of ln α, (hosts,)."""
    credited: Floats
    """Σ w z n p/(1 − e^{−s}), signals that were true as far as known, (hosts, sources)."""
    signals: Floats
    """Σ w n, w the weight of a page: its signals count as five at most; (hosts, sources)."""
    seen_rate: Floats
    """Σ E/(B + T), the rates that records of T days saw beside the prior, (hosts,)."""
    seen_pages: Floats
    """Σ T/(B + T), pages' worth of them, (hosts,)."""
    surplus: Floats
    """How changes surprise where signals came, Σ w(z − P), (hosts, sources)."""
    surplus_variance: Floats
    """Its variance if signals say nothing, Σ w²P(1 − P), (hosts, sources)."""
    room: Floats
    """What it would be if all signals were true, Σ w c(1 − P), (hosts, sources)."""


def initial_host_priors(
    hosts: int,
    sources: int,
    change_rate: float = INITIAL_CHANGE_RATE,
    shape: float = INITIAL_SHAPE,
    precision: float = INITIAL_PRECISION,
) -> HostPriors:
    """The priors of `hosts` hosts about which nothing is known; `change_rate` in 1/day."""
    if not (0 < change_rate < np.inf and 0 < shape < np.inf and 0 < precision < 1):
        raise ValueError(
            f"initial change_rate={change_rate} and shape={shape} must be positive and "
            f"precision={precision} between 0 and 1"
        )
    return HostPriors(
        np.full(hosts, float(shape)),
        np.full(hosts, shape / change_rate),
        np.full((hosts, sources), float(precision)),
    )


def host_sums(
    pages: Integers,
    host_index: Integers,
    hosts: int,
    unsignalled_change_rate: NDArray[Any],
    signal_evidence: NDArray[Any],
    posterior_shape: NDArray[Any],
    intervals: NDArray[Any],
    signals: NDArray[Any],
    changed: Flags,
    count: NDArray[Any],
    priors: HostPriors,
    factor: Floats | None = None,
) -> HostSums:
    """Sum the statistics of the crawled pages among `pages` by host.

    `host_index`, `unsignalled_change_rate` (1/day), `posterior_shape` and `count` are (pages,)
    columns, `signal_evidence` (pages, K); the rings are those that the columns were fitted from
    (`map_fit.fit_rings_map`), under `priors`. Pages without a record (count 0)
    are left out. With a `factor` of each page (`page_factors`) the rates are those over it: what is
    left for the host to say.

    Raises ValueError when shapes do not fit.
    """
    layers = check_rings(pages, intervals, signals, changed, count)
    crawled = pages[np.asarray(count)[pages] > 0]
    owners = host_index[crawled]
    factors = np.ones(count.size) if factor is None else factor
    heard, widths = light_modes(
        crawled,
        intervals,
        layers,
        changed,
        count,
        priors.shape[host_index],
        priors.rate[host_index] / factors,
        unsignalled_change_rate,
        signal_evidence.reshape(count.size, layers.shape[2]),
        posterior_shape,
    )
    rates, shapes = heard[crawled] / factors[crawled], widths[crawled]
    log_rates = digamma(shapes) - np.log(shapes / rates)
    credited = np.zeros((hosts, layers.shape[2]))
    signalled = np.zeros_like(credited)
    seen, surplus = np.zeros((2, hosts)), np.zeros((3, *credited.shape))
    credit_rings(
        crawled,
        host_index,
        intervals,
        layers,
        changed,
        count,
        priors.rate,
        factors,
        unsignalled_change_rate,
        heard,
        signal_evidence.reshape(count.size, layers.shape[2]),
        credited,
        signalled,
        *seen,
    )
    surprise_rings(crawled, host_index, intervals, layers, changed, count, priors.shape, *surplus)
    return HostSums(
        np.bincount(owners, minlength=hosts).astype(np.float64),
        np.bincount(owners, rates, hosts).astype(np.float64),
        np.bincount(owners, log_rates, hosts).astype(np.float64),
        credited,
        signalled,
        *seen,
        *surplus,
    )


def fit_host_priors(
    sums: HostSums,
    site_of_host: Integers | None = None,
    source_of_slot: Integers | None = None,
    initial_change_rate: float = INITIAL_CHANGE_RATE,
    initial_shape: float = INITIAL_SHAPE,
    initial_precision: float = INITIAL_PRECISION,
) -> HostPriors:
    """Refit every host's prior from the sums over its pages.

    `site_of_host` (hosts,), numbers from 0, pools the hosts of one site (subdomains) before
    everything else; without it every host is pooled with all others. `source_of_slot`
    (hosts, sources) numbers the sources that a host's columns are about, which are pooled within a
    site by that number; without it a column is about the same source at all hosts. The `initial_*`
    values are five pseudo-pages behind the global statistics, and where precisions start.
    """
    spread = float(digamma(initial_shape) - np.log(initial_shape / initial_change_rate))
    everything = _Means(
        np.array([initial_change_rate]),
        np.array([initial_change_rate]),
        np.array([spread]),
        np.full((1, sums.credited.shape[1]), initial_precision),
    )
    all_hosts = np.zeros(sums.pages.size, np.int64)
    known = _pooled(HostSums(*(_summed_by(all_hosts, field) for field in sums)), everything)
    # Sources differ between hosts: what all of them have in common says nothing of one.
    parent = known._replace(precision=everything.precision).of(all_hosts)
    verdict = signal_verdicts(sums)
    if site_of_host is not None:
        of_site = _sums_of_sites(sums, site_of_host, source_of_slot)
        parent = _pooled(of_site, parent)
        verdict = np.where(verdict == UNDECIDED, signal_verdicts(of_site), verdict)
    means = _pooled(sums, parent)
    gap = np.log(means.change_rate) - means.log_change_rate
    shape = np.clip(gamma_shape(gap), LEAST_SHAPE, MOST_SHAPE)
    precision = np.clip(means.precision, LEAST_PRECISION, MOST_PRECISION)
    precision[verdict == SAY_NOTHING] = LOWEST_PRECISION
    return HostPriors(shape, shape / means.seen_rate, precision)


def signal_verdicts(sums: HostSums) -> NDArray[np.int8]:
    """Whether signals prove to say something of changes, by host and source, (hosts, sources).

    Their precision is about surplus/room (`host_kernel.surprise_rings`). Where two standard errors
    above that are still below `LEAST_PRECISION_TOLD`, signals say nothing; where two below are
    above, they tell; elsewhere too little was seen, or nothing without them.
    """
    error = 2.0 * np.sqrt(sums.surplus_variance)
    limit, is_seen = LEAST_PRECISION_TOLD * sums.room, sums.room > 0.0
    nothing = is_seen & (sums.surplus + error < limit)
    tell = is_seen & (sums.surplus - error > limit)
    return np.where(tell, TELL, np.where(nothing, SAY_NOTHING, UNDECIDED)).astype(np.int8)


def gamma_shape(gap: NDArray[Any]) -> Floats:
    """Shape A of a Gamma law with ln A − ψ(A) = `gap` = ln E[α] − E[ln α] > 0, elementwise.

    Newton in ln A from the usual closed start (Minka 2002); gaps below 1e-3 count as 1e-3
    (A ≈ 500), above 1e3 as 1e3.
    """
    y = np.clip(np.asarray(gap, dtype=np.float64), 1e-3, 1e3)
    shape = (3 - y + np.sqrt((y - 3) ** 2 + 24 * y)) / (12 * y)
    for _ in range(8):
        excess = np.log(shape) - digamma(shape) - y
        slope = 1.0 - shape * polygamma(1, shape)
        shape = shape * np.exp(np.clip(-excess / slope, -1.5, 1.5))
    return np.asarray(shape, dtype=np.float64)


class _Means(NamedTuple):
    """Statistics of groups of pages, a row a group."""

    change_rate: Floats
    seen_rate: Floats
    log_change_rate: Floats
    precision: Floats

    def of(self, groups: Integers) -> "_Means":
        """The rows of `groups`."""
        return _Means(*(column[groups] for column in self))


def _pooled(sums: HostSums, parent: _Means) -> _Means:
    """Means over the pages of each group and the pseudo-pages of its parent."""
    weight = sums.pages + PSEUDO_PAGES
    signals = sums.signals + PSEUDO_SIGNALS
    return _Means(
        (sums.change_rate + PSEUDO_PAGES * parent.change_rate) / weight,
        (sums.seen_rate + PSEUDO_PAGES * parent.seen_rate) / (sums.seen_pages + PSEUDO_PAGES),
        (sums.log_change_rate + PSEUDO_PAGES * parent.log_change_rate) / weight,
        (sums.credited + PSEUDO_SIGNALS * parent.precision) / signals,
    )


def _sums_of_sites(
    sums: HostSums, site_of_host: Integers, source_of_slot: Integers | None
) -> HostSums:
    """By host, what all hosts of its site come to; of signals, those with the same source."""
    if source_of_slot is None:
        source_of_slot = np.broadcast_to(np.arange(sums.signals.shape[1]), sums.signals.shape)
    sources = int(source_of_slot.max(initial=0)) + 1
    pairs = site_of_host[:, np.newaxis] * sources + source_of_slot
    of_signals = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)
    groups = (of_signals if field.ndim == pairs.ndim else site_of_host for field in sums)
    return HostSums(
        *(_summed_by(group, field)[group] for group, field in zip(groups, sums, strict=True))
    )


def _summed_by(group: Integers, values: Floats) -> Floats:
    """Sums of all `values` of each group; both arrays are of one shape, or `values` has rows."""
    totals = np.zeros((int(group.max(initial=-1)) + 1, *values.shape[group.ndim :]))
    np.add.at(totals, group, values)
    return totals
