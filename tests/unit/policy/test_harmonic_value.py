"""The harmonic objective: closed forms, mpmath integrals, simulation, and its inverse."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.bench.value_reference import regularised_gamma
from shared.policy.harmonic import harmonic_penalty, harmonic_threshold, harmonic_value
from shared.policy.kernels.harmonic import ein, unit_harmonic, unit_harmonic_inverse


@pytest.mark.parametrize("x", [1e-12, 1e-3, 0.7, 5.0, 29.9, 30.1, 400.0])
def test_ein_matches_mpmath(x):
    expected = mp.e1(x) + mp.log(x) + mp.euler if x > 1e-2 else x - x * x / 4 + x**3 / 18
    assert ein(x) == pytest.approx(float(expected), rel=2e-14)


@pytest.mark.parametrize("u", [1e-9, 1e-3, 0.39, 0.41, 3.0, 80.0])
def test_value_without_signals(u):
    with mp.workdps(50):
        expected = float(mp.mpf(u) + mp.expm1(-mp.mpf(u)))
    assert unit_harmonic(u) == pytest.approx(expected, rel=2e-15)
    assert unit_harmonic_inverse(expected) == pytest.approx(u, rel=1e-13)
    value = harmonic_value(3.0, 0.5, 0.0, 0.0, u / 0.5, 0)
    assert value[0] == pytest.approx(3.0 / 0.5 * expected, rel=1e-14)


@given(st.floats(-6, 2), st.floats(-4, 2), st.floats(-3, 2), st.integers(0, 50))
def test_signals_of_which_no_more_come_count_as_those_that_come_ever_more_seldom(
    log_alpha, log_kappa, log_t, n
):
    alpha, kappa, t = 10.0**log_alpha, 10.0**log_kappa, 10.0**log_t
    none, seldom = (harmonic_value(1.0, alpha, kappa, gamma, t, n)[0] for gamma in (0.0, 1e-12))
    assert none == pytest.approx(seldom, rel=1e-5)


def test_complete_signals():
    counts = np.arange(6)
    np.testing.assert_allclose(
        harmonic_value(2.0, 0.0, np.inf, 0.4, 3.0, counts), 2.0 * counts / 0.4
    )
    q = math.exp(-0.3)
    expected = [sum(1 - q**k for k in range(1, n + 1)) / 0.4 for n in counts]
    np.testing.assert_allclose(harmonic_value(1.0, 0.0, 0.3, 0.4, 3.0, counts), expected)
    many = harmonic_value(1.0, 0.0, 0.3, 0.4, 3.0, 200)[0]
    assert many == pytest.approx(sum(1 - q**k for k in range(1, 201)) / 0.4, rel=1e-13)


@pytest.mark.parametrize("state", [(0.5, 0), (0.5, 3), (0.0, 4), (40.0, 30), (1e-3, 1), (0.0, 900)])
def test_penalty_is_the_expected_harmonic_number(state):
    alpha, kappa = 0.7, 0.9
    p = -math.expm1(-kappa)
    t, n = state

    def integrand(y):
        return (1 - mp.exp(-alpha * t * y) * (1 - p * y) ** n) / y

    with mp.workdps(25):
        expected = float(mp.quad(integrand, [0, 0.001, 0.01, 0.05, 0.2, 0.5, 1]))
    assert harmonic_penalty(alpha, kappa, t, n)[0] == pytest.approx(expected, rel=1e-11)


def ein_value_by_quadrature(alpha, precision, gamma, iota):
    """∫(1−e^{−αy})/y ψ(y) dy over pieces, ψ from its sum of incomplete gamma functions."""
    alpha, gamma, jump = mp.mpf(alpha), mp.mpf(gamma), mp.mpf(precision / alpha)

    def psi(y):
        terms = range(int(mp.floor(y / jump)) + 1)
        return mp.fsum(regularised_gamma(i, gamma * (y - i * jump)) / gamma for i in terms)

    edges = [k * jump for k in range(int(iota / jump) + 1)] + [iota]
    return float(mp.quad(lambda y: -mp.expm1(-alpha * y) / y * psi(y), edges))


@pytest.mark.parametrize(
    ("alpha", "kappa", "gamma", "t", "n"),
    [
        (0.3, 0.9, 0.5, 2.2, 2),
        (0.3, np.inf, 0.5, 2.2, 1),
        (1.0, 0.2, 3.0, 1.0, 1),
        pytest.param(1.0, 0.05, 3.0, 1.0, 3, marks=[pytest.mark.slow(2), pytest.mark.long]),
    ],
)
def test_ein_form_is_its_integral(alpha, kappa, gamma, t, n):
    p = -math.expm1(-kappa)
    value = harmonic_value(1.0, alpha, kappa, gamma, t, n)[0]
    expected = ein_value_by_quadrature(alpha, p, gamma, t + n * p / alpha)
    assert value == pytest.approx(expected, rel=1e-10)


def test_ein_form_far_out_is_continuous():
    """Where the linear tail takes over, value and slope go on as before."""
    times = np.linspace(30.0, 60.0, 121)
    values = harmonic_value(1.0, 0.3, 0.5, 0.4, times, 0)
    assert np.abs(np.diff(values, 3)).max() < 1e-6 * np.diff(values).max()


def test_exact_value_of_a_simulated_policy():
    """V = c*ψ − E∫c for the policy that crawls once the expected penalty reaches c*."""
    alpha, kappa, gamma, t = 0.3, np.inf, 0.5, 4.0
    rng = np.random.default_rng(8)
    age = harmonic_penalty(alpha, kappa, t, 0)[0]
    reach, penalty = [], []
    grid = np.linspace(0, t, 4_001)
    for n in range(30):
        ages = harmonic_penalty(alpha, kappa, grid, n)
        if ages[0] >= age:
            break
        reach.append(np.interp(age, ages, grid))
        steps = 0.5 * (ages[1:] + ages[:-1]) * (grid[1] - grid[0])
        penalty.append(np.concatenate([[0.0], np.cumsum(steps)]))
    cycles = 40_000
    samples = np.empty(cycles)
    for cycle in range(cycles):
        now, total, signals = 0.0, 0.0, 0
        arrivals = np.cumsum(rng.exponential(1 / gamma, 30))
        while signals < len(reach) and arrivals[signals] < reach[signals]:
            total += np.interp(arrivals[signals], grid, penalty[signals]) - np.interp(
                now, grid, penalty[signals]
            )
            now = arrivals[signals]
            signals += 1
        end = max(reach[signals], now) if signals < len(reach) else now
        if signals < len(reach):
            total += np.interp(end, grid, penalty[signals]) - np.interp(now, grid, penalty[signals])
        samples[cycle] = age * end - total
    expected = harmonic_value(1.0, alpha, kappa, gamma, t, 0, exact=True)[0]
    assert abs(samples.mean() - expected) < 4 * samples.std() / math.sqrt(cycles)


def test_exact_value_has_the_right_limits_and_is_close_to_the_ein_form():
    exact = harmonic_value(1.0, 0.3, 0.9, 0.5, 2.2, [0, 1, 3], exact=True)
    form = harmonic_value(1.0, 0.3, 0.9, 0.5, 2.2, [0, 1, 3])
    np.testing.assert_allclose(exact, form, rtol=0.15)
    rare = harmonic_value(1.0, 0.3, 0.9, 1e-9, 2.2, 0, exact=True)
    np.testing.assert_allclose(rare, harmonic_value(1.0, 0.3, 0.0, 0.0, 2.2, 0), rtol=1e-7)
    weak = harmonic_value(1.0, 0.3, 1e-9, 0.5, 2.2, 0, exact=True)
    np.testing.assert_allclose(weak, harmonic_value(1.0, 0.3, 0.0, 0.0, 2.2, 0), rtol=1e-7)


@pytest.mark.parametrize(
    ("alpha", "kappa", "gamma"),
    [(0.3, 0.0, 0.0), (0.3, 0.9, 0.5), (0.3, np.inf, 0.5), (0.05, 0.2, 3.0)],
)
def test_inverse(alpha, kappa, gamma):
    thresholds = np.array([1e-6, 0.01, 1.0, 30.0])
    ages, rates = harmonic_threshold(2.0, alpha, kappa, gamma, thresholds)
    values = harmonic_value(2.0, alpha, kappa, gamma, ages / alpha, 0)
    np.testing.assert_allclose(values, thresholds, rtol=1e-9)
    assert (np.diff(rates) < 0).all()


def test_inverse_at_the_edges():
    ages, rates = harmonic_threshold(1.0, 0.0, [0.7, np.inf], 0.4, 3.0)
    for age, rate, kappa in zip(ages, rates, [0.7, np.inf], strict=True):
        signals = round(0.4 / rate)
        below, at = harmonic_value(1.0, 0.0, kappa, 0.4, 1.0, [signals - 1, signals])
        assert below < 3.0 <= at
        assert age == signals * -math.expm1(-kappa)
    assert harmonic_threshold(0.0, 0.5, 0.0, 0.0, 1.0)[0][0] == np.inf
    assert harmonic_threshold(1.0, 0.0, 0.0, 0.0, 1.0)[0][0] == np.inf
    assert harmonic_threshold(1.0, 0.5, 0.0, 0.0, 0.0)[0][0] == 0.0


@pytest.mark.parametrize("alpha", [1e-6, 1e-12, 1e-100, 1e-320])
def test_hardly_any_change_without_a_signal(alpha):
    """As α → 0 the n-th signal finds the age Ein(np): V = (1/γ)Σ_{k<n}(Ein(np) − Ein(kp))."""
    kappa, gamma, signals = 0.9, 2.0, 300
    p = -math.expm1(-kappa)
    value = harmonic_value(1.0, alpha, kappa, gamma, 3.0, [4, signals])
    for found, n in zip(value, [4, signals], strict=True):
        limit = sum(ein(n * p) - ein(k * p) for k in range(n)) / gamma
        assert found == pytest.approx(limit, rel=max(10 * alpha * n, 1e-12))


@pytest.mark.parametrize("alpha", [1e-3, 1e-9, 1e-100])
@pytest.mark.parametrize("threshold", [1e-3, 0.3, 7.0, 400.0])
def test_inverse_where_hardly_any_change_is_without_a_signal(alpha, threshold):
    kappa, gamma = 0.9, 2.0
    p = -math.expm1(-kappa)
    age, rate = harmonic_threshold(1.0, alpha, kappa, gamma, threshold)
    # on days where the last signal's share of the age would be rounded away, on signals elsewhere
    signals = math.floor(age[0] / p)
    days = (age[0] - signals * p) / alpha
    value = harmonic_value(1.0, alpha, kappa, gamma, days, signals)
    assert value[0] == pytest.approx(threshold, rel=1e-8)
    assert rate[0] == pytest.approx(gamma / (signals + 1), rel=0.05)


@settings(max_examples=60, deadline=None)
@given(st.floats(-12, 2), st.floats(-4, 3), st.floats(-3, 3), st.floats(-2, 3), st.integers(0, 400))
def test_the_value_rises_with_time_and_with_signals(log_alpha, log_kappa, log_gamma, log_t, n):
    alpha, kappa, gamma, t = 10.0**log_alpha, 10.0**log_kappa, 10.0**log_gamma, 10.0**log_t
    value = harmonic_value(1.0, alpha, kappa, gamma, [t, 1.1 * t, t], [n, n, n + 1])
    assert np.isfinite(value).all()
    assert value[1] >= value[0] * (1 - 1e-12)
    assert value[2] >= value[0] * (1 - 1e-12)
