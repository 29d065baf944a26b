"""The crawl value: against 60-digit arithmetic, simulation, its limits and its properties."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.bench import value_reference as reference
from services.bench.random_pages import random_states
from shared.policy.value import (
    crawl_rate,
    crawl_value,
    crawl_value_at_evidence,
    crawl_value_slope,
    freshness,
    intervals,
)

RATE = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)
STATE = {
    "alpha": RATE,
    "kappa": st.one_of(st.floats(-12, 1.5).map(lambda exponent: 10.0**exponent), st.just(math.inf)),
    "gamma": st.one_of(RATE, st.just(0.0)),
    "elapsed": st.floats(0.0, 1e6),
    "signals": st.integers(0, 1000),
}


@pytest.mark.slow(3)
@pytest.mark.parametrize(
    ("count", "seed"), [(40, 11), pytest.param(1000, 12, marks=pytest.mark.long)]
)
def test_value_and_interval_match_the_textbook_sums_in_sixty_digits(count, seed):
    states = random_states(count, seed=seed)
    alpha, kappa, _, elapsed, signals = states.T
    # The sums' time grows with the square of their terms: one state of a thousand is enough.
    of_many = np.flatnonzero(signals + elapsed * alpha / kappa > 300)
    states = np.delete(states, of_many[1:], axis=0)
    values = crawl_value(1.0, *states.T)
    psis, _ = intervals(*states.T)
    for row, value, psi in zip(states, values, psis, strict=True):
        expected_value, expected_psi = reference.value_and_psi(*row[:4], int(row[4]))
        if expected_value > 1e-290:
            assert abs(value / expected_value - 1) <= 1e-12, row
        assert abs(psi / expected_psi - 1) <= 1e-12, row


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(
    ("alpha", "kappa", "gamma", "elapsed", "signals"),
    [
        (1e-3, 1e-3, 1e2, 0.5, 400),  # G = 100, hundreds of unsaturated terms
        (1e-6, 1e-4, 1.0, 3.0, 500),
        (0.01, 2e-4, 50.0, 2.0, 500),
        (1.0, 0.5, 1e-6, 200.0, 0),  # 400 periods, few signals
        (0.3, 1e-9, 300.0, 1e-7, 12),
        (0.02, 3.0, 0.7, 450.0, 3),  # exactly three whole β
    ],
)
def test_many_terms_match_the_textbook_sums(alpha, kappa, gamma, elapsed, signals):
    expected_value, expected_psi = reference.value_and_psi(alpha, kappa, gamma, elapsed, signals)
    psi, _ = intervals(alpha, kappa, gamma, elapsed, signals)
    value = crawl_value(1.0, alpha, kappa, gamma, elapsed, signals)
    assert abs(value[0] / expected_value - 1) <= 1e-12
    assert abs(psi[0] / expected_psi - 1) <= 1e-12


@pytest.mark.parametrize("exponent", range(-9, 3))
def test_without_signals_it_is_the_closed_form(exponent):
    for elapsed in np.random.default_rng(1).uniform(1, 10, 20) * 10.0**exponent:
        value = crawl_value(1.0, 0.37, 2.0, 0.0, elapsed, 0)[0]
        with mp.workdps(100):
            u = mp.mpf(0.37) * mp.mpf(elapsed)
            expected = (1 - (1 + u) * mp.exp(-u)) / mp.mpf(0.37)
        assert abs(value / expected - 1) <= 1e-14


@pytest.mark.parametrize("kappa", [1e-9, 1e-4, 0.01, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("signals", [0, 1, 2, 7, 40, 1000])
def test_complete_signals_give_the_staircase(kappa, signals):
    value = crawl_value(1.0, 0.0, kappa, 3.0, 5.0, signals)[0]
    expected = reference.staircase_value(kappa, 3.0, signals)
    assert abs(value - expected) <= 1e-13 * expected


def test_noiseless_signals():
    alpha, gamma, t = 0.2, 0.7, 1.5
    c = alpha + gamma
    first = -math.expm1(-c * t) / c - math.exp(-alpha * t) * -math.expm1(-gamma * t) / gamma
    values = crawl_value(2.0, alpha, np.inf, gamma, t, [0, 1, 5])
    np.testing.assert_allclose(values, [2.0 * first, 2.0 / c, 2.0 / c], rtol=1e-14)
    np.testing.assert_array_equal(crawl_value(2.0, 0.0, np.inf, gamma, t, [0, 3]), [0.0, 2 / gamma])


def test_as_signals_become_worthless_the_change_rate_takes_over():
    """β → 0 at fixed signal rate: the no-signal value with rate Δ, not α."""
    kappa, gamma, alpha = 1e-10, 1e9, 0.3
    change_rate = alpha + gamma * -math.expm1(-kappa)
    signals = 1000
    elapsed = signals / gamma
    value = crawl_value(1.0, alpha, kappa, gamma, elapsed, signals)[0]
    unsignalled = crawl_value(1.0, change_rate, 0.0, 0.0, elapsed, 0)[0]
    assert value == pytest.approx(unsignalled, rel=2e-2)
    late = crawl_value(1.0, alpha, kappa, gamma, 3.0, 3.0 * gamma)[0]
    assert late == pytest.approx(crawl_value(1.0, change_rate, 0.0, 0.0, 3.0, 0)[0], rel=1e-6)


@settings(max_examples=300, deadline=None)
@given(**STATE)
def test_value_is_finite_bounded_and_grows(alpha, kappa, gamma, elapsed, signals):
    change_rate = alpha - (gamma * math.expm1(-kappa) if gamma > 0 else 0.0)
    later = [elapsed, elapsed * 1.01, elapsed, elapsed + 1.0]
    more = [signals, signals, signals + 1, signals + 1]
    here, after, signalled, both = crawl_value(1.0, alpha, kappa, gamma, later, more)
    assert 0.0 <= here <= (1 + 1e-12) / change_rate
    # monotone to rounding
    assert after >= here * (1 - 1e-12)
    assert both >= max(signalled, here) * (1 - 1e-12)
    if gamma > 0:
        assert signalled >= here * (1 - 1e-12)


@settings(max_examples=200, deadline=None)
@given(**STATE)
def test_whole_evidence_counts_as_signals(alpha, kappa, gamma, elapsed, signals):
    evidence = signals * kappa if signals else 0.0
    counted = crawl_value(1.0, alpha, kappa, gamma, elapsed, signals)
    summed = crawl_value_at_evidence(1.0, alpha, kappa, gamma, elapsed, evidence)
    np.testing.assert_allclose(summed, counted, rtol=1e-11)


def test_evidence_between_whole_signals_is_between_their_values():
    evidence = np.linspace(0.0, 4.0, 41)
    for alpha, kappa in ((0.1, 1.0), (0.0, 1.0)):
        values = crawl_value_at_evidence(1.0, alpha, kappa, 0.6, 0.5, evidence)
        assert (np.diff(values) > 0).all()
        np.testing.assert_allclose(values[::10], crawl_value(1.0, alpha, kappa, 0.6, 0.5, range(5)))


def test_no_importance_means_no_value_and_no_input_gives_nan():
    kappas = [0.0, 1e-300, 1e-12, 1.0, 700.0, np.inf]
    for alpha in (0.0, 1e-300, 1e-9, 1.0, 1e9):
        for gamma in (0.0, 1e-300, 1.0, 1e9):
            for elapsed in (0.0, 1e-300, 1.0, 1e9):
                for signals in (0, 1, 1000):
                    values = crawl_value(1.0, alpha, kappas, gamma, elapsed, signals)
                    assert np.isfinite(values).all(), (alpha, gamma, elapsed, signals, values)
    assert crawl_value(0.0, 0.3, 1.0, 0.5, 1e9, 10)[0] == 0.0


def test_slope_is_the_derivative_of_the_value():
    for alpha, kappa, gamma, t, n in ((0.3, 0.8, 0.5, 2.2, 1), (0.3, 0.0, 0.0, 2.0, 0)):
        step = 1e-5
        before, after = crawl_value(2.0, alpha, kappa, gamma, [t - step, t + step], n)
        slope = crawl_value_slope(2.0, alpha, kappa, gamma, t, n)[0]
        assert (after - before) / (2 * step) == pytest.approx(slope, rel=1e-8)


def test_freshness_and_crawl_rate():
    assert freshness(0.3, 2.0, 1.5)[0] == math.exp(-2.1)
    psi, _ = intervals(0.3, 0.8, 0.5, 2.2, 1)
    assert crawl_rate(0.3, 0.8, 0.5, 2.2, 1)[0] == 1 / psi[0]
    assert crawl_rate(0.3, 0.8, 0.5, 0.0, 0)[0] == math.inf


def simulate_cycles(page, threshold, cycles, rng):
    """(length, fresh time) of cycles of the policy that crawls once αt + κn ≥ threshold."""
    alpha, kappa, gamma = page
    beta = kappa / alpha
    iota = threshold / alpha
    lengths = np.zeros(cycles)
    fresh = np.zeros(cycles)
    age = np.zeros(cycles)
    running = np.arange(cycles)
    while len(running):
        wait = rng.exponential(1 / gamma, len(running))
        left = iota - age[running]
        stay = np.minimum(wait, left)
        fresh[running] += np.exp(-alpha * age[running]) * -np.expm1(-alpha * stay) / alpha
        lengths[running] += stay
        age[running] += wait + beta
        running = running[(wait < left) & (age[running] < iota)]
    return lengths, fresh


@pytest.mark.parametrize(
    ("change_rate", "recall", "noise", "iota"),
    [(0.5, 0.5, 0.3, 4.0), (0.5, 0.9, 0.3, 4.0), (0.5, 0.1, 0.3, 4.0), (0.2, 0.7, 2.0, 10.0)],
)
def test_simulated_threshold_policy(change_rate, recall, noise, iota):
    alpha = (1 - recall) * change_rate
    gamma = recall * change_rate + noise
    kappa = math.log1p(recall * change_rate / noise)
    rng = np.random.default_rng(5)
    lengths, fresh = simulate_cycles((alpha, kappa, gamma), alpha * iota, 300_000, rng)
    psi, w = intervals(alpha, kappa, gamma, iota, 0)
    value = crawl_value(1.0, alpha, kappa, gamma, iota, 0)
    samples = fresh - math.exp(-alpha * iota) * lengths
    for sample, expected in ((lengths, psi), (fresh, w), (samples, value)):
        error = sample.std() / math.sqrt(len(sample))
        assert abs(sample.mean() - expected[0]) < 4 * error


def test_threads_and_output_column():
    states = random_states(2000, seed=3)
    out = np.empty(len(states))
    serial = crawl_value(2.0, *states.T, out=out)
    assert serial is out
    np.testing.assert_array_equal(crawl_value(2.0, *states.T, threads=2), serial)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one row a page"):
        crawl_value([1.0, 2.0], [0.1, 0.2, 0.3], 1.0, 1.0, 1.0, 1)


def test_reference_agrees_with_mpmath_gamma():
    with mp.workdps(40):
        for i, x in ((0, 0.3), (3, 2.0), (25, 40.0), (10, 0.5)):
            expected = mp.gammainc(i + 1, 0, mp.mpf(x), regularized=True)
            assert abs(reference.regularised_gamma(i, mp.mpf(x)) / expected - 1) < 1e-25


def test_signals_that_count_as_more_days_than_an_integer_holds():
    """As α → 0 the value is that of α = 0; as κ → 0 signals count for nothing."""
    rare = crawl_value(1.0, [1e-12, 1e-20, 1e-100], 0.9, 2.0, 3.0, 20 * 0.9)
    complete = crawl_value(1.0, 0.0, 0.9, 2.0, 3.0, 20 * 0.9)
    np.testing.assert_allclose(rare, np.full(3, complete[0]), rtol=1e-10)
    weak = crawl_value(1.0, 0.5, [1e-12, 1e-20, 1e-100], 2.0, 3.0, 0.0)
    none = crawl_value(1.0, 0.5, 0.0, 0.0, 3.0, 0.0)
    np.testing.assert_allclose(weak, np.full(3, none[0]), rtol=1e-10)
