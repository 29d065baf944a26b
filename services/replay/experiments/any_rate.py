"""How soon any rate is learned, from once in weeks to once in ten seconds, decade by decade.

Each page is crawled after about 1/α days, uniformly half to one and a half of it: an informative
crawl, of which six in ten find a change. A page alone has the prior of a new installation; others
lie on hosts whose pages, and those of all other hosts, are as fast to a decade, and priors are
fitted from the same crawls. The estimator is not told how the intervals were chosen.

By a prior of mean m, whatever its form, n unchanged crawls never raise the posterior mean above m;
nor do they raise this estimator. One with that property has no less mean error for a page alone
than e^−n ln(α/m) after n crawls of 1/α days. Without it there is no such bound: 1/t of the last
interval t has an error of 0.26 here, for here intervals tell α away. Where a scheduler chooses
them, it says only what was believed before.

What the law of the rates is worth is told by the posterior median under that very law, flat in ln α
over the six decades: of all who take intervals as given, it is right about everything else.
"""

import numpy as np
from numpy.typing import NDArray

from services.replay.experiments.estimator_study import ROUNDS
from services.replay.experiments.results import Figure, Scale, Told, summarised
from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE
from shared.policy.estimation.host_priors import fit_host_priors, host_sums, initial_host_priors
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map

Floats = NDArray[np.float64]

DECADES = (-2, -1, 0, 1, 2, 3)
"""Powers of ten at which each begins: rates from one in 100 days to 10,000 a day."""

SIZES = (1, 4, 16)
PAGES = 400
"""Of each decade, alone."""
HOSTS, PAGES_A_HOST = 20, 25
"""Of each decade."""
CRAWLS = ("1 crawl", "4 crawls", "16 crawls")
NAMES = tuple(f"{crawls}, {where}" for where in ("alone", "with its host") for crawls in CRAWLS)

LAW = np.log(10.0) * np.linspace(DECADES[0], DECADES[-1] + 1, 301)
"""ln α, equally probable all: the law by which the rates of pages alone are drawn."""

Crawls = tuple[Floats, NDArray[np.uint8]]
"""Intervals, days, and whether a change was found; (pages, crawls)."""


def any_rate(scale: Scale, told: Told) -> Figure:
    """Mean |ln(α̂/α)| after 1, 4 and 16 informative crawls, by decade of α."""
    found = np.empty((len(NAMES), scale.repetitions, len(DECADES)))
    lawful = np.empty(found.shape[1:])
    for repetition in range(scale.repetitions):
        rng = scale.rng(repetition, 34)
        alone = 10.0 ** (np.repeat(DECADES, PAGES) + rng.random(PAGES * len(DECADES)))
        for row, size in enumerate(SIZES):
            owner, crawls = np.arange(alone.size), _crawled(alone, size, rng)
            found[row, repetition] = _by_decade(alone, _learned(crawls, owner, 0))
            found[len(SIZES) + row, repetition] = [
                _with_hosts(decade, size, rng) for decade in DECADES
            ]
            if size == SIZES[1]:
                lawful[repetition] = _by_decade(alone, by_law(*crawls))
        told((repetition + 1) / scale.repetitions)
    middles = [decade + 0.5 for decade in DECADES]
    series = [summarised(name, middles, means) for name, means in zip(NAMES, found, strict=True)]
    series.append(summarised(f"{CRAWLS[1]}, alone, by the law", middles, lawful))
    for name, size in zip(CRAWLS[:2], SIZES[:2], strict=True):
        bound = np.exp(-size) * np.log(10.0 ** np.array(middles) / INITIAL_CHANGE_RATE)
        least = np.maximum(bound, 0.0)[np.newaxis]
        series.append(summarised(f"{name}, bound alone", middles, least))
    return Figure(
        "estimator-any-rate",
        "Learning α over six decades",
        "log₁₀ of changes a day",
        "error",
        "lines",
        series,
        "a crawl about every 1/α days, no signals",
    )


def _with_hosts(decade: int, size: int, rng: np.random.Generator) -> float:
    """Mean error of pages of hosts whose means lie anywhere in a decade."""
    host = np.repeat(np.arange(HOSTS), PAGES_A_HOST)
    mean = 10.0 ** (decade + rng.random(HOSTS))
    shape = rng.uniform(0.7, 3.0, HOSTS)
    alpha = rng.gamma(shape[host], (mean / shape)[host])
    estimate = _learned(_crawled(alpha, size, rng), host, ROUNDS)
    return float(np.abs(np.log(estimate / alpha)).mean())


def _crawled(alpha: Floats, size: int, rng: np.random.Generator) -> Crawls:
    """So many informative crawls of each page."""
    shape = (alpha.size, size)
    intervals = rng.uniform(0.5, 1.5, shape) / alpha[:, np.newaxis]
    changed = rng.random(shape) < -np.expm1(-alpha[:, np.newaxis] * intervals)
    return intervals, changed.astype(np.uint8)


def _learned(crawls: Crawls, owner: NDArray[np.int64], rounds: int) -> Floats:
    """α̂ after these crawls, priors of `owner` fitted in so many rounds."""
    intervals, flags = crawls
    signals = np.zeros((*intervals.shape, 1))
    records = intervals, signals, flags, np.full(owner.size, intervals.shape[1])
    pages, hosts = np.arange(owner.size), int(owner.max()) + 1
    priors = initial_host_priors(hosts, 1)
    out = MapColumns(np.zeros(owner.size), np.zeros((owner.size, 1)), np.zeros(owner.size))
    fit_rings_map(pages, owner, *records, priors, out)
    for _ in range(rounds):
        rate, evidence, width = out
        sums = host_sums(pages, owner, hosts, rate, evidence, width, *records, priors)
        priors = fit_host_priors(sums)
        fit_rings_map(pages, owner, *records, priors, out)
    return out.unsignalled_change_rate


def by_law(intervals: Floats, changed: NDArray[np.uint8]) -> Floats:
    """Posterior medians of α under `LAW`, the intervals taken as given.

    Args:
        intervals: days, (pages, crawls).
        changed: whether a change was found.
    """
    likelihood = np.zeros((intervals.shape[0], LAW.size))
    for days, found in zip(intervals.T, changed.T, strict=True):
        expected = days[:, np.newaxis] * np.exp(LAW)
        seen = np.log(-np.expm1(-expected))
        likelihood += np.where(found[:, np.newaxis], seen, -expected)
    weight = np.exp(likelihood - likelihood.max(axis=1, keepdims=True)).cumsum(axis=1)
    return np.asarray(np.exp(LAW[(weight < 0.5 * weight[:, -1:]).sum(axis=1)]))


def _by_decade(alpha: Floats, estimate: Floats) -> Floats:
    """Mean error of the pages of each decade."""
    decade = np.floor(np.log10(alpha)).astype(np.int64) - DECADES[0]
    error = np.abs(np.log(estimate / alpha))
    return np.bincount(decade, error, len(DECADES)) / np.bincount(decade, minlength=len(DECADES))
