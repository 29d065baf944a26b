"""How well parameters are learned: against sample size, before the first crawl, and under drift.

Pages lie on hosts whose mean rates and signal precisions differ by much, each host with two signal
sources; crawls come at random times. The error of a rate is |ln(α̂/α)|, its bias the mean of
ln(α̂/α), with estimates held within `BOUNDS`; that of a precision is |p̂ − p|.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.replay.experiments.results import Figure, Scale, Series, Told, summarised
from shared.policy.estimation.change_rates import change_rates_from_crawls
from shared.policy.estimation.host_priors import (
    HostPriors,
    fit_host_priors,
    host_sums,
    initial_host_priors,
)
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.smoothed import fit_histories

Floats = NDArray[np.float64]

HOSTS, PAGES_A_HOST, SOURCES = 40, 50, 2
MEAN_INTERVAL = 8.0
"""Days between crawls of a page."""
SIGNAL_RATE = 0.04
"""Of each source, a day."""
BOUNDS = (1e-4, 10.0)
"""A day; estimates beyond count as the bound."""
ROUNDS = 8
"""Of priors and pages in turn."""

SIZES = (1, 2, 4, 8, 16, 32)
CRAWLED_SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
SINCE_DRIFT = (0, 2, 4, 8, 16, 32)
DEPTHS = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class Web:
    """Pages of many hosts, and their crawl records."""

    host: NDArray[np.int64]
    alpha: Floats
    precision: Floats
    """(hosts, SOURCES)."""
    intervals: Floats
    """(pages, records)."""
    signals: Floats
    """(pages, records, SOURCES)."""
    changed: NDArray[np.uint8]


def draw_web(records: int, rng: np.random.Generator) -> Web:
    """Hosts of mean rates spread over two orders of magnitude, and their pages' records."""
    host = np.repeat(np.arange(HOSTS), PAGES_A_HOST)
    mean = 0.02 * rng.lognormal(0.0, 1.2, HOSTS)
    shape = rng.uniform(0.7, 3.0, HOSTS)
    alpha = rng.gamma(shape[host], (mean / shape)[host])
    precision = rng.beta(1.2, 1.2, (HOSTS, SOURCES))
    return _crawled(host, np.maximum(alpha, BOUNDS[0]), precision, records, rng)


def _crawled(
    host: NDArray[np.int64],
    alpha: Floats,
    precision: Floats,
    records: int,
    rng: np.random.Generator,
) -> Web:
    intervals = rng.exponential(MEAN_INTERVAL, (host.size, records))
    signals = rng.poisson(SIGNAL_RATE * intervals[:, :, None], (host.size, records, SOURCES))
    true_signals = rng.binomial(signals, precision[host][:, None, :]).sum(axis=2)
    unsignalled = rng.poisson(alpha[:, None] * intervals)
    changed = ((unsignalled + true_signals) > 0).astype(np.uint8)
    return Web(host, alpha, precision, intervals, signals.astype(np.float64), changed)


def _rings(
    web: Web, counts: NDArray[np.int64], depth: int
) -> tuple[Floats, Floats, NDArray[np.uint8]]:
    """Rings of the last `depth` of the first `counts` records of each page."""
    rings = (
        np.zeros((web.host.size, depth)),
        np.zeros((web.host.size, depth, SOURCES)),
        np.zeros((web.host.size, depth), np.uint8),
    )
    for record in range(int(counts.max(initial=0))):
        seen = counts > record
        rings[0][seen, record % depth] = web.intervals[seen, record]
        rings[1][seen, record % depth] = web.signals[seen, record]
        rings[2][seen, record % depth] = web.changed[seen, record]
    return rings


def production_fit(
    web: Web, counts: NDArray[np.int64], owner: NDArray[np.int64], depth: int = 0
) -> tuple[MapColumns, HostPriors]:
    """Pages under priors of `owner` (hosts, or one group of all), in rounds as in production.

    `counts`: records of each page that are known, the first ones; of them the last `depth` count.
    """
    depth = depth or web.intervals.shape[1]
    groups = int(owner.max()) + 1
    pages = np.arange(owner.size)
    rings = _rings(web, counts, depth)
    priors = initial_host_priors(groups, SOURCES)
    out = MapColumns(np.zeros(owner.size), np.zeros((owner.size, SOURCES)), np.zeros(owner.size))
    for _ in range(ROUNDS):
        fit_rings_map(pages, owner, *rings, counts, priors, out)
        sums = host_sums(pages, owner, groups, *out, *rings, counts, priors)
        priors = fit_host_priors(sums)
    fit_rings_map(pages, owner, *rings, counts, priors, out)
    return out, priors


def _log_error(estimate: Floats, truth: Floats) -> tuple[float, float]:
    """(error, bias)."""
    gap = np.log(np.clip(estimate, *BOUNDS) / truth)
    return float(np.abs(gap).mean()), float(gap.mean())


def against_size(scale: Scale, told: Told) -> Figure:
    """Error and bias of α against the crawl records of a page, for four estimators."""
    names = ("crawls alone, unsmoothed", "smoothed [K]", "one prior for all", "host priors")
    found = np.empty((2, len(names), scale.repetitions, len(SIZES)))
    for repetition in range(scale.repetitions):
        web = draw_web(SIZES[-1], scale.rng(repetition, 31))
        for column, size in enumerate(SIZES):
            counts = np.full(web.host.size, size)
            flat = (
                web.intervals[:, :size].ravel(),
                web.signals[:, :size].reshape(-1, SOURCES),
                web.changed[:, :size].ravel(),
            )
            offsets = np.arange(web.host.size + 1) * size
            estimates = (
                change_rates_from_crawls(flat[0], flat[2], offsets, pseudo_interval=0.0),
                fit_histories(*flat, offsets).unsignalled_change_rate,
                production_fit(web, counts, np.zeros_like(web.host))[0].unsignalled_change_rate,
                production_fit(web, counts, web.host)[0].unsignalled_change_rate,
            )
            for row, estimate in enumerate(estimates):
                found[:, row, repetition, column] = _log_error(estimate, web.alpha)
        told((repetition + 1) / scale.repetitions)
    series = [
        summarised(f"{what}, {name}", list(SIZES), found[kind, row])
        for kind, what in enumerate(("error", "bias"))
        for row, name in enumerate(names)
    ]
    return _figure("estimator-size", "Learning α: error and bias", "crawls of a page", series)


def cold_start(scale: Scale, told: Told) -> Figure:
    """Pages that were never crawled: α of their own, and precision of their signals, from what
    crawls of other pages say, by the share of pages crawled four times each."""
    names = (
        "α, one prior for all",
        "α, host priors",
        "precision, one for all",
        "precision, by host and source",
    )
    found = np.empty((len(names), scale.repetitions, len(CRAWLED_SHARES)))
    for repetition in range(scale.repetitions):
        rng = scale.rng(repetition, 32)
        web = draw_web(4, rng)
        turn = rng.random(web.host.size)
        for column, share in enumerate(CRAWLED_SHARES):
            counts = np.where(turn < share, 4, 0)
            new = turn >= 0.5
            for row, owner in enumerate((np.zeros_like(web.host), web.host)):
                fitted, priors = production_fit(web, counts, owner)
                error, _ = _log_error(fitted.unsignalled_change_rate[new], web.alpha[new])
                gap = np.abs(priors.precision[owner] - web.precision[web.host])
                found[[row, 2 + row], repetition, column] = error, gap.mean()
        told((repetition + 1) / scale.repetitions)
    series = [
        summarised(name, list(CRAWLED_SHARES), values)
        for name, values in zip(names, found, strict=True)
    ]
    title = "Cold start: pages never crawled"
    return _figure("estimator-cold-start", title, "share of pages crawled", series)


def drift(scale: Scale, told: Told) -> Figure:
    """Every page takes over the rate of another; by how many of the last records are kept."""
    names = [f"last {depth} crawls" for depth in DEPTHS]
    found = np.empty((len(names), scale.repetitions, len(SINCE_DRIFT)))
    for repetition in range(scale.repetitions):
        rng = scale.rng(repetition, 33)
        before = draw_web(32, rng)
        other = rng.permutation(before.alpha)
        after = _crawled(before.host, other, before.precision, 32, rng)
        web = Web(
            before.host,
            other,
            before.precision,
            np.concatenate([before.intervals, after.intervals], axis=1),
            np.concatenate([before.signals, after.signals], axis=1),
            np.concatenate([before.changed, after.changed], axis=1),
        )
        for column, since in enumerate(SINCE_DRIFT):
            counts = np.full(web.host.size, 32 + since)
            for row, depth in enumerate(DEPTHS):
                fitted, _ = production_fit(web, counts, web.host, depth)
                estimate = fitted.unsignalled_change_rate
                found[row, repetition, column] = _log_error(estimate, web.alpha)[0]
        told((repetition + 1) / scale.repetitions)
    series = [
        summarised(name, list(SINCE_DRIFT), values)
        for name, values in zip(names, found, strict=True)
    ]
    return _figure("estimator-drift", "Drift: error of α", "crawls since the drift", series)


def _figure(name: str, title: str, x_label: str, series: list[Series]) -> Figure:
    notes = (
        f"{HOSTS} hosts of {PAGES_A_HOST} pages, two sources, a crawl every {MEAN_INTERVAL:g} days"
    )
    return Figure(name, title, x_label, "error", "lines", series, notes)
