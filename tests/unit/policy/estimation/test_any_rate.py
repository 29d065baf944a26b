"""Any rate is learned from a page's own crawls, however far above its host's it lies."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from services.replay.experiments import any_rate
from services.replay.experiments.results import Scale
from services.replay.trace import population_trace
from services.replay.virtual_estimator import Batch, VirtualEstimator
from shared.policy.estimation.host_priors import (
    HostPriors,
    fit_host_priors,
    host_sums,
    initial_host_priors,
)
from shared.policy.estimation.light_modes import light_modes
from shared.policy.estimation.map_fit import MapColumns, fit_histories_map, fit_rings_map

C = mpmath.mpf("1.1")
TEN_SECONDS = 10.0 / 86_400


def fit(intervals, changed, priors=None, signals=None):
    """The page of these records."""
    signals = [0] * len(intervals) if signals is None else signals
    priors = initial_host_priors(1, 1) if priors is None else priors
    ends = [0, len(intervals)]
    return fit_histories_map(intervals, signals, changed, ends, np.zeros(1, int), priors)


def rate(intervals, changed, priors=None):
    return float(fit(intervals, changed, priors).unsignalled_change_rate[0])


def log_posterior(u, kappa, records, shape, days, precision):
    """From the text, in as many digits as mpmath has: α = e^u, records (t, n, z), B = `days`."""
    alpha, knee = mpmath.e**u, (shape + C) / days
    total = shape * mpmath.log(alpha) - days * min(alpha, knee)
    if alpha > knee:
        total -= (shape + C) * mpmath.log(alpha / knee)
    total += precision * mpmath.log(-mpmath.expm1(-kappa)) - (1 - precision) * kappa
    for t, n, z in records:
        s = alpha * t + kappa * n
        total += mpmath.log(-mpmath.expm1(-s)) if z else -s
    return total


def test_the_mode_is_that_of_fifty_digits_on_either_side_of_the_knee() -> None:
    rng = np.random.default_rng(21)
    beyond = 0
    with mpmath.workdps(50):
        for _ in range(60):
            shape, days = float(rng.uniform(0.1, 3.0)), float(10 ** rng.uniform(-1, 3))
            alpha = 10 ** rng.uniform(-1, 6) * shape / days
            count = int(rng.integers(1, 17))
            intervals = rng.exponential(1.0, count) / alpha
            changed = rng.random(count) < -np.expm1(-alpha * intervals)
            records = [(mpmath.mpf(t), 0, bool(z)) for t, z in zip(intervals, changed, strict=True)]
            priors = HostPriors(np.array([shape]), np.array([days]), np.array([[0.5]]))
            found = mpmath.log(rate(intervals, changed, priors))
            beyond += mpmath.e**found * days > shape + C

            def along(u, records=records, shape=shape, days=days):
                return log_posterior(u, mpmath.log(2), records, shape, days, mpmath.mpf("0.5"))

            # Concave in u, so that slopes of either sign enclose the mode.
            near = mpmath.mpf("1e-6")
            slopes = [(along(found + d) - along(found + 2 * d)) / d for d in (-near, near)]
            assert slopes[0] < 0 < slopes[1]
    assert 10 < beyond < 50


def test_with_signals_it_is_a_mode_in_every_direction() -> None:
    rng = np.random.default_rng(22)
    with mpmath.workdps(40):
        for _ in range(60):
            shape, days, p = rng.uniform(0.1, 3.0), 10 ** rng.uniform(-1, 3), rng.uniform(0.1, 0.9)
            alpha, count = 10 ** rng.uniform(-1, 5) * shape / days, int(rng.integers(1, 17))
            intervals = rng.exponential(1.0, count) / alpha
            signals = rng.poisson(0.7, count)
            changed = rng.random(count) < -np.expm1(-alpha * intervals - signals)
            signals[0] = max(signals[0], 1)
            priors = HostPriors(np.array([shape]), np.array([days]), np.array([[p]]))
            out = fit(intervals, changed, priors, signals)
            mode = (out.unsignalled_change_rate[0], out.signal_evidence[0, 0])
            at = [mpmath.log(value) for value in mode]
            records = [*zip(map(mpmath.mpf, intervals), signals.tolist(), changed, strict=True)]

            def value(u, v, records=records, prior=(shape, days, p)):
                return log_posterior(u, mpmath.e**v, records, *prior)

            best = value(*at)
            for turn in np.arange(16) * np.pi / 8:
                step = mpmath.mpf("1e-3")
                aside = value(at[0] + step * np.cos(turn), at[1] + step * np.sin(turn))
                assert aside < best + mpmath.mpf("1e-8")


def test_below_the_knee_the_prior_is_the_gamma() -> None:
    priors = HostPriors(np.array([2.0]), np.array([30.0]), np.array([[0.5]]))
    found = rate([10.0] * 4, [1, 0, 0, 1], priors)
    assert found < (2.0 + C) / 30.0
    with mpmath.workdps(30):

        def slope(alpha):
            return 2 / alpha - 30 - 20 + 2 * 10 / mpmath.expm1(10 * alpha)

        root = mpmath.findroot(slope, (0.01, 0.08), solver="anderson")
        assert found == pytest.approx(float(root), rel=1e-9)
    assert rate([], []) == pytest.approx(1 / 60)
    assert rate([7.0], [0]) == pytest.approx(0.5 / 37.0)


def test_a_page_that_changes_every_few_seconds_is_known_after_a_minute() -> None:
    found = rate([TEN_SECONDS] * 6, [1, 1, 1, 1, 1, 0])
    assert 0.5 * 8640 < found < 3.0 * 8640


def test_a_new_installation_knows_a_fast_page_after_a_minute() -> None:
    days = np.arange(1, 7) * TEN_SECONDS
    none, one = np.empty(0, np.int64), np.ones(1)
    trace = population_trace(one, days, np.zeros(6, np.int64), np.empty(0), none, 1.0)
    estimator = VirtualEstimator(trace, 0.0)
    estimator.add(np.zeros(1, np.int64))
    for day, changed in zip(days, [True, True, False, True, True, True], strict=True):
        crawl = np.zeros(1, np.int64), np.array([day]), np.array([changed])
        estimator.take(Batch(none, np.empty(0), none, *crawl), float(day))
    page = estimator.shard.pages[0]
    assert 0.5 * 8640 < page["unsignalled_change_rate"] < 3.0 * 8640


def test_any_rate_is_learned_over_six_decades() -> None:
    figure = any_rate.any_rate(Scale(repetitions=2), lambda _: None)
    error = {line.label: line.mean for line in figure.series}
    assert max(error["16 crawls, alone"]) < 0.4
    assert max(error["4 crawls, alone"]) < 2.8
    assert max(error["1 crawl, with its host"]) < 1.3
    assert max(error["4 crawls, with its host"]) < 0.8
    assert max(error["16 crawls, with its host"]) < 0.4
    for name in any_rate.CRAWLS[:2]:
        least = np.array(error[f"{name}, bound alone"])
        assert (np.array(error[f"{name}, alone"]) > least - 0.3).all()
    by_law = np.array(error["4 crawls, alone, by the law"])
    assert by_law.mean() > 0.9  # not even who knows the law has .8 in each decade


@pytest.mark.slow(0.5)
def test_the_median_by_the_law_parts_the_posterior_in_halves() -> None:
    rng = np.random.default_rng(8)
    low, high = float(any_rate.LAW[0]), float(any_rate.LAW[-1])
    for count in (1, 2, 4):
        intervals, changed = 10.0 ** rng.uniform(-4, 2, (2, count)), rng.integers(0, 2, (2, count))
        found = np.log(any_rate.by_law(intervals, changed.astype(np.uint8)))
        for median, records in zip(found, zip(intervals, changed, strict=True), strict=True):

            def posterior(u, records=records):
                exponents = [(mpmath.e**u * t, z) for t, z in zip(*records, strict=True)]
                return mpmath.fprod(
                    -mpmath.expm1(-x) if z else mpmath.exp(-x) for x, z in exponents
                )

            def mass(end, posterior=posterior):
                return mpmath.quad(posterior, mpmath.linspace(low, end, 13))

            # The law has steps of 0.046 in ln α.
            assert mass(median - 0.06) <= mass(high) / 2 <= mass(median + 0.06)


record = st.tuples(st.floats(1e-6, 1e3), st.booleans())


@settings(max_examples=200, deadline=None)
@given(st.lists(record, min_size=1, max_size=20), st.floats(0.1, 20), st.floats(1e-3, 1e5))
def test_more_changes_never_lower_a_rate_and_quiet_time_never_raises_it(records, shape, days):
    priors = HostPriors(np.array([shape]), np.array([days]), np.array([[0.5]]))
    intervals, changed = map(list, zip(*records, strict=True))
    found = rate(intervals, changed, priors)
    assert 0 < found < np.inf
    assert rate([*intervals, 1.0], [*changed, 0], priors) <= found * (1 + 1e-6)
    assert rate([*intervals, 1.0 / found * 1e-3], [*changed, 1], priors) >= found * (1 - 1e-6)
    for place, was in enumerate(changed):
        if not was:
            more = [*changed[:place], 1, *changed[place + 1 :]]
            assert rate(intervals, more, priors) >= found * (1 - 1e-6)
            break


def test_one_fast_page_says_nothing_of_its_host() -> None:
    rng = np.random.default_rng(23)
    pages, records = 60, 8
    alpha = np.append(rng.gamma(1.5, 0.02, pages - 1), 8640.0)
    intervals = rng.uniform(5.0, 30.0, (pages, records))
    intervals[-1] = TEN_SECONDS
    chance = -np.expm1(-alpha[:, None] * intervals)
    changed = (rng.random(intervals.shape) < chance).astype(np.uint8)
    rings = (intervals, np.zeros((pages, records, 1)), changed, np.full(pages, records))

    def learned(count):
        priors = initial_host_priors(1, 1)
        chosen, owner = np.arange(count), np.zeros(pages, int)
        out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
        for _ in range(6):
            fit_rings_map(chosen, owner, *rings, priors, out)
            priors = fit_host_priors(host_sums(chosen, owner, 1, *out, *rings, priors))
        return priors, out

    (without, _), (beside, out) = learned(pages - 1), learned(pages)
    assert 2000 < out.unsignalled_change_rate[-1] < 40_000
    assert beside.shape[0] > 0.5 * without.shape[0]
    mean = [priors.shape[0] / priors.rate[0] for priors in (without, beside)]
    assert mean[1] < 1.5 * mean[0]


def test_hosts_hear_the_mode_that_the_gamma_alone_would_have() -> None:
    rng = np.random.default_rng(24)
    pages, depth = 40, 8
    alpha = 10 ** rng.uniform(-4, 4, pages)
    intervals = rng.exponential(1.0, (pages, depth)) / alpha[:, None]
    signals = rng.poisson(0.5, (pages, depth, 1)).astype(float)
    chance = -np.expm1(-alpha[:, None] * intervals - signals[:, :, 0])
    changed = (rng.random((pages, depth)) < chance).astype(np.uint8)
    records = (intervals, signals, changed, np.full(pages, depth))
    priors, owner = initial_host_priors(1, 1), np.zeros(pages, int)
    shape, rate_days = priors.shape[owner], priors.rate[owner]
    out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
    fit_rings_map(np.arange(pages), owner, *records, priors, out)
    rates, widths = light_modes(np.arange(pages), *records, shape, rate_days, *out)
    is_beyond = out.unsignalled_change_rate * rate_days > shape + 1.1
    assert 10 < is_beyond.sum() < 35
    assert (rates[~is_beyond] == out.unsignalled_change_rate[~is_beyond]).all()
    assert (widths[~is_beyond] == out.posterior_shape[~is_beyond]).all()
    for page in np.flatnonzero(is_beyond).tolist():

        def slope(u, page=page):
            """Of the log-posterior in ln α, κ given."""
            own = np.exp(u) * intervals[page]
            told = out.signal_evidence[page, 0] * signals[page, :, 0]
            per_record = np.where(
                changed[page], own / np.expm1(np.minimum(own + told, 700.0)), -own
            )
            return shape[page] - rate_days[page] * np.exp(u) + per_record.sum()

        above = np.log(out.unsignalled_change_rate[page])
        mode = brentq(slope, np.log(1e-6), above, xtol=1e-13)
        assert rates[page] == pytest.approx(np.exp(mode), rel=1e-8)
        curvature = (slope(mode - 1e-5) - slope(mode + 1e-5)) / 2e-5
        assert widths[page] == pytest.approx(max(curvature, 0.15), rel=1e-5)
        assert rates[page] < out.unsignalled_change_rate[page]
