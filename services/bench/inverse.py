"""Benchmark of the inverse of the crawl value: V⁻¹(V(ι)) = ι, and nanoseconds a page."""

from typing import Any

import numpy as np

from services.bench.random_pages import random_population, random_states
from services.bench.timing import best_seconds
from shared.policy.inverse import threshold_staleness, threshold_time
from shared.policy.model import PageParameters
from shared.policy.value import crawl_value, crawl_value_slope

_ROUNDING = 2.3e-16
_TOLD = 1e-10
"""ι is compared where a rounding of V moves it by less than this, relative."""


def run(pages: int, sets: int, seed: int) -> dict[str, Any]:
    """Invert ``sets`` random values, and time ``pages`` pages of which a fifth have signals.

    ``max_relative_error`` is the worst of |V⁻¹(V(ι))/ι − 1| wherever V′ lets a float tell,
    ``compared`` how many sets those are; ``ns_per_page`` is for the mixed pages on one thread.
    """
    alpha, kappa, gamma, elapsed, _ = random_states(sets, seed).T
    values = crawl_value(1.0, alpha, kappa, gamma, elapsed, 0)
    slope = crawl_value_slope(1.0, alpha, kappa, gamma, elapsed, 0)
    told = slope * elapsed * _TOLD > values * _ROUNDING
    back = threshold_time(1.0, alpha, kappa, gamma, values)
    errors = np.abs(back[told] / elapsed[told] - 1.0)
    mixed, _, _, _ = random_population(pages, 1, seed)
    noisy, _, _, _ = random_population(pages, 1, seed, signalled_share=1.0)
    return {
        "pages": pages,
        "sets": sets,
        "compared": int(told.sum()),
        "max_relative_error": float(errors.max()),
        "ns_per_page": _nanoseconds(mixed, seed),
        "ns_per_page_all_with_signals": _nanoseconds(noisy, seed),
    }


def _nanoseconds(params: PageParameters, seed: int) -> float:
    share = np.random.default_rng(seed).uniform(0.01, 0.99, len(params))
    thresholds = share * params.highest_value
    columns = (params.importance, params.alpha, params.kappa, params.gamma, thresholds)
    return best_seconds(lambda: threshold_staleness(*columns), repeats=3) / len(params) * 1e9
