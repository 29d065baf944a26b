"""Benchmark of the crawl value: exactness against 60 digits, and time against other forms."""

import time
from typing import Any

import numpy as np
from scipy.special import gammainc

from services.bench.random_pages import random_ages, random_population, random_states
from services.bench.timing import best_seconds, thread_seconds
from services.bench.value_reference import value_and_psi
from shared.policy.approximations import g_ncis_approximation
from shared.policy.model import Column, PageParameters
from shared.policy.value import crawl_value, intervals

_SCIPY_PAGES = 10_000
_SHORT_TERMS = 50
"""Sums of fewer terms are also compared alone: the textbook form is at its best there."""

_SMALLEST = 1e-290
"""Below this a relative error says nothing: the value itself is about to underflow."""


def run(pages: int, sets: int, seed: int) -> dict[str, Any]:
    """Check ``sets`` random states and time ``pages`` pages with noisy signals.

    ``max_relative_error`` is the worst of V and ψ, ``wrong`` the share off by more than 1e-12 and
    ``nan`` how many are no number; ``ns_per_page`` is the exact kernel on one thread, ``ratio``
    how many times faster that is than scipy's gammainc form of the textbook sums over the same
    population, whose time a few pages with very many terms rule, ``ratio_on_short_sums`` the same
    without those, and ``ratio_to_unsignalled`` how many times slower than the kernel of pages
    without signals.
    """
    errors = _errors(random_states(sets, seed))
    params, _, _, _ = random_population(pages, 1, seed, signalled_share=1.0)
    elapsed, signals = random_ages(params, seed)
    times = _times(params, elapsed, signals)
    exact = times["exact"]
    return {
        "pages": pages,
        "sets": sets,
        "max_relative_error": float(np.nanmax(errors)),
        "max_relative_error_value": float(np.nanmax(errors[:, 0])),
        "max_relative_error_psi": float(np.nanmax(errors[:, 1])),
        "wrong": float((errors > 1e-12).any(axis=1).mean()),
        "nan": int(np.isnan(errors).sum()),
        "ns_per_page": exact,
        "ratio": times["scipy_gammainc"] / exact,
        "ratio_on_short_sums": times["scipy_gammainc_short"] / times["exact_short"],
        "ratio_to_unsignalled": exact / times["unsignalled"],
        "forms_ns_per_page": times,
    }


def _errors(states: Column) -> Column:
    values = crawl_value(1.0, *states.T)
    psis, _ = intervals(*states.T)
    errors = np.zeros((len(states), 2))
    for row, (state, value, psi) in enumerate(zip(states, values, psis, strict=True)):
        alpha, kappa, gamma, elapsed, signals = state.tolist()
        expected, expected_psi = value_and_psi(alpha, kappa, gamma, elapsed, int(signals))
        if expected > _SMALLEST:
            errors[row, 0] = abs(float(value / expected - 1))
        errors[row, 1] = abs(float(psi / expected_psi - 1))
    return errors


def _times(params: PageParameters, elapsed: Column, signals: Column) -> dict[str, float]:
    """Nanoseconds a page of every form."""
    count = len(params)
    columns = (params.importance, params.alpha, params.kappa, params.gamma, elapsed, signals)
    none = np.zeros(count)
    silent = (params.importance, params.change_rate, none, none, elapsed, none)
    out = np.empty(count)
    terms = signals + params.alpha * elapsed / params.kappa
    some = tuple(column[:_SCIPY_PAGES] for column in columns)
    short = tuple(column[terms < _SHORT_TERMS][:_SCIPY_PAGES] for column in columns)
    forms: dict[str, tuple[Any, int, int]] = {
        "unsignalled": (lambda: crawl_value(*silent, out=out), count, 5),
        "unsignalled_2_threads": (lambda: crawl_value(*silent, out=out, threads=2), count, 5),
        "unsignalled_numpy": (lambda: _unsignalled_numpy(*silent), count, 5),
        "exact": (lambda: crawl_value(*columns, out=out), count, 5),
        "exact_2_threads": (lambda: crawl_value(*columns, out=out, threads=2), count, 5),
        "exact_short": (lambda: crawl_value(*short), len(short[0]), 5),
        "approximation_1": (lambda: g_ncis_approximation(*columns, terms=1), count, 5),
        "approximation_2": (lambda: g_ncis_approximation(*columns, terms=2), count, 5),
        "scipy_gammainc": (lambda: _textbook_scipy(*some), len(some[0]), 1),
        "scipy_gammainc_short": (lambda: _textbook_scipy(*short), len(short[0]), 1),
    }
    return {
        name: best_seconds(
            form,
            repeats=repeats,
            clock=time.perf_counter if name.endswith("_2_threads") else thread_seconds,
        )
        / size
        * 1e9
        for name, (form, size, repeats) in forms.items()
    }


def _unsignalled_numpy(
    importance: Column, rate: Column, _kappa: Column, _gamma: Column, elapsed: Column, _n: Column
) -> Column:
    u = rate * elapsed
    value: Column = importance / rate * (1.0 - (1.0 + u) * np.exp(-u))
    return value


def _textbook_scipy(
    importance: Column, alpha: Column, kappa: Column, gamma: Column, elapsed: Column, n: Column
) -> Column:
    """[N] lemma 4 as written, term by term over all pages that have the term."""
    beta = kappa / alpha
    total_rate = alpha + gamma
    psi = np.zeros(len(alpha))
    fresh = np.zeros(len(alpha))
    rows = np.arange(len(alpha))
    i = 0
    while len(rows):
        x = elapsed[rows] + (n[rows] - i) * beta[rows]
        rows, x = rows[x > 0], x[x > 0]
        psi[rows] += gammainc(i + 1, gamma[rows] * x) / gamma[rows]
        decay = np.exp(-i * kappa[rows]) * (gamma[rows] / total_rate[rows]) ** i
        fresh[rows] += decay / total_rate[rows] * gammainc(i + 1, total_rate[rows] * x)
        i += 1
    value: Column = importance * (fresh - np.exp(-alpha * elapsed - kappa * n) * psi)
    return value
