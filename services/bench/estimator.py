"""Benchmark of the estimators: pages fitted per second, and scipy on the same smoothed problem."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from services.bench.timing import thread_seconds
from shared.policy.estimation.host_priors import fit_host_priors, host_sums, initial_host_priors
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.smoothed import (
    PSEUDO_INTERVAL,
    PSEUDO_SIGNAL_WEIGHT,
    SmoothedFit,
    fit_histories,
)

SCIPY_PAGES = 200
"""Pages given to scipy, which fits them one at a time."""

RING_DEPTH = 16
SOURCES = 3
HOSTS = 200
"""Shape of the production fit: the last 16 crawls, three signal sources, 200 hosts."""

Columns = NDArray[Any]


class Population(NamedTuple):
    """Simulated ragged histories, 4 to 64 crawls a page."""

    intervals: Columns
    signals: Columns
    changed: Columns
    offsets: Columns


def run(pages: int, seed: int) -> dict[str, Any]:
    """Fit `pages` simulated histories; report one thread's speed and agreement with scipy.

    `max_relative_error` is the largest relative distance in α and κ from scipy's optimum, polished
    by Newton's method on its own objective; `worst_excess` how far our objective ever lies above
    scipy's; `ratio` how many times faster a fit is than scipy's L-BFGS-B with exact gradients.
    """
    population = simulate(pages, seed)
    fit_histories(*_first(population, min(pages, 10)))
    started = thread_seconds()
    fit = fit_histories(*population)
    seconds = thread_seconds() - started
    compared = min(SCIPY_PAGES, pages)
    scipy_seconds, error, excess = _against_scipy(population, fit, compared)
    map_seconds, prior_seconds = _production(pages, seed)
    return {
        "pages": pages,
        "records": int(population.offsets[-1]),
        "seconds": seconds,
        "fits_per_second": pages / seconds,
        "ns_per_page": 1e9 * seconds / pages,
        "iterations_mean": float(fit.iterations.mean()),
        "iterations_max": int(fit.iterations.max()),
        "scipy_fits_per_second": compared / scipy_seconds,
        "ratio": (pages / seconds) / (compared / scipy_seconds),
        "max_relative_error": error,
        "worst_excess": excess,
        "production_fits_per_second": pages / map_seconds,
        "host_priors_seconds": prior_seconds,
    }


def simulate(pages: int, seed: int) -> Population:
    """Histories of pages with change rates over 1.5 decades, recall and precision at random."""
    rng = np.random.default_rng(seed)
    crawls = rng.integers(4, 65, pages)
    owner = np.repeat(np.arange(pages), crawls)
    change_rate = 10 ** rng.uniform(-1, 0.5, pages)
    recall, precision = rng.uniform(0.05, 0.95, pages), rng.uniform(0.1, 0.95, pages)
    true_rate = recall * change_rate
    false_rate = true_rate * (1 - precision) / precision
    intervals = rng.exponential(1.0, owner.size)
    announced = rng.poisson(true_rate[owner] * intervals)
    silent = rng.poisson((change_rate - true_rate)[owner] * intervals)
    signals = announced + rng.poisson(false_rate[owner] * intervals)
    changed = (announced + silent > 0).astype(np.uint8)
    return Population(intervals, signals, changed, np.append(0, np.cumsum(crawls)))


def _first(population: Population, pages: int) -> Population:
    intervals, signals, changed, offsets = population
    end = offsets[pages]
    return Population(intervals[:end], signals[:end], changed[:end], offsets[: pages + 1])


def _against_scipy(
    population: Population, fit: SmoothedFit, pages: int
) -> tuple[float, float, float]:
    """Seconds of scipy for `pages` pages, and how far our fits are from its optima."""
    seconds, error, excess = 0.0, 0.0, -np.inf
    for page in range(pages):
        rows = slice(population.offsets[page], population.offsets[page + 1])
        t = np.concatenate([population.intervals[rows], [PSEUDO_INTERVAL, PSEUDO_INTERVAL, 0, 0]])
        n = np.concatenate([population.signals[rows], [0, 0, 1, 1]])
        z = np.concatenate([population.changed[rows], [1, 0, 1, 0]]) > 0
        weight = np.ones(t.size)
        weight[-2:] = PSEUDO_SIGNAL_WEIGHT
        design = np.column_stack([t, n])
        started = thread_seconds()
        found = minimize(
            _objective,
            [0.5, 0.1],
            args=(design, z, weight),
            jac=True,
            method="L-BFGS-B",
            bounds=[(1e-9, None), (1e-9, 50.0)],
            options={"ftol": 1e-15, "gtol": 1e-9},
        )
        seconds += thread_seconds() - started
        ours = np.array([fit.unsignalled_change_rate[page], fit.signal_evidence[page]])
        exact = _polished(found.x, design, z, weight)
        error = max(error, float(np.abs(ours / exact - 1).max()))
        excess = max(excess, float(_objective(ours, design, z, weight)[0] - found.fun))
    return seconds, error, excess


def _objective(
    theta: Columns, design: Columns, changed: Columns, weight: Columns
) -> tuple[float, Columns]:
    """The smoothed negative log-likelihood and its gradient, in numpy."""
    exponent = np.clip(design @ theta, 1e-300, 700.0)
    slope = weight * np.where(changed, -1.0 / np.expm1(exponent), 1.0)
    value = weight * np.where(changed, -np.log(-np.expm1(-exponent)), exponent)
    return float(value.sum()), slope @ design


def _polished(
    theta: Columns, design: Columns, changed: Columns, weight: Columns
) -> NDArray[np.float64]:
    """Newton's method from scipy's optimum, so that it is exact to rounding."""
    for _ in range(5):
        odds = np.where(changed, 1.0 / np.expm1(np.clip(design @ theta, 1e-300, 700.0)), 0.0)
        hessian = design.T @ ((weight * odds * (1 + odds))[:, None] * design)
        gradient = _objective(theta, design, changed, weight)[1]
        theta = np.maximum(theta - np.linalg.solve(hessian, gradient), 0.2 * theta)
    return np.asarray(theta, dtype=np.float64)


def _production(pages: int, seed: int) -> tuple[float, float]:
    """Seconds of the posterior modes of `pages` pages, and of one refit of the host priors."""
    rng = np.random.default_rng(seed)
    hosts = rng.integers(0, HOSTS, pages)
    change_rate = rng.gamma(0.7, 0.2, pages)
    intervals = rng.exponential(2.0, (pages, RING_DEPTH)).astype(np.float32)
    signals = rng.poisson(0.15, (pages, RING_DEPTH, SOURCES)).astype(np.uint16)
    exponent = change_rate[:, None] * intervals + signals @ np.array([2.0, 0.5, 0.05])
    changed = (rng.random(exponent.shape) < -np.expm1(-exponent)).astype(np.uint8)
    count = rng.integers(0, 2 * RING_DEPTH, pages)
    rings: tuple[Any, Any, Any, Any] = (intervals, signals, changed, count)
    every = np.arange(pages)
    out = MapColumns(np.zeros(pages), np.zeros((pages, SOURCES)), np.zeros(pages))
    priors = initial_host_priors(HOSTS, SOURCES)
    fit_rings_map(every[:10], hosts, *rings, priors, out)
    host_sums(every[:10], hosts, HOSTS, *out, *rings, priors)
    started = thread_seconds()
    fit_rings_map(every, hosts, *rings, priors, out)
    fitted = thread_seconds()
    fit_host_priors(host_sums(every, hosts, HOSTS, *out, *rings, priors))
    return fitted - started, thread_seconds() - fitted
