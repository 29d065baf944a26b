"""The mixture of staleness and age: closed forms, sixty-digit integrals, limits, its inverse."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.bench.value_reference import regularised_gamma
from shared.policy.kernels.mixture import (
    MOST_EVIDENCE,
    mixture_slope,
    mixture_threshold,
    mixture_value_and_psi,
    unit_age,
)
from shared.policy.value import value_and_psi


@pytest.mark.parametrize("u", [1e-9, 1e-3, 0.39, 0.41, 3.0, 80.0])
def test_age_without_signals_is_its_integral(u):
    with mp.workdps(60):
        expected = mp.mpf(u) ** 2 / 2 - 1 + (1 + mp.mpf(u)) * mp.exp(-mp.mpf(u))
    assert unit_age(u) == pytest.approx(float(expected), rel=2e-14)
    value, psi = mixture_value_and_psi(0.5, 0.0, 0.0, 1.0, u / 0.5, 0.0)
    assert value == pytest.approx(float(expected) / 0.25, rel=2e-14)
    assert psi == pytest.approx(u / 0.5)


def value_by_quadrature(alpha, kappa, gamma, weight, days, signals):
    """∫c′ψ over pieces between whole β, ψ from its sum of incomplete gamma functions."""
    alpha, kappa, gamma = mp.mpf(alpha), mp.mpf(kappa), mp.mpf(gamma)
    beta, strength = kappa / alpha, gamma * kappa / alpha
    iota = days + signals * beta

    def slope(y):
        whole = range(int(mp.floor(y / beta)) + 1)
        psi = mp.fsum(regularised_gamma(i, gamma * (y - i * beta)) for i in whole) / gamma
        pace = (1 + strength * mp.exp(-gamma * y)) / (1 + strength)
        stale = 1 - mp.exp(-alpha * y)
        return ((1 - weight) * alpha * mp.exp(-alpha * y) + weight * stale * pace) * psi

    edges = [k * beta for k in range(int(iota / beta) + 1)]
    near = [edge + 3 / (alpha + gamma) for edge in edges]
    edges = sorted([*edges, *(edge for edge in near if edge < iota), iota])
    return float(mp.quad(slope, edges))


@pytest.mark.parametrize(
    "page",
    [
        (0.3, 0.9, 0.5, 0.3, 2.2, 2),
        (0.3, 3.0, 0.5, 1.0, 2.2, 0),
        (1e-3, 3.0, 5.0, 1.0, 2.2, 1),
        (1e-4, 30.0, 5.0, 0.2, 50.0, 0),
    ],
)
def test_value_with_signals_is_its_integral(page):
    value, _ = mixture_value_and_psi(*map(float, page))
    assert value == pytest.approx(value_by_quadrature(*page), rel=1e-12)


def test_every_change_signalled_is_a_staircase():
    kappa, gamma, weight = 0.7, 0.4, 0.6
    cost = [
        (1 - weight) * (1 - math.exp(-n * kappa))
        + weight * (n * kappa - 1 + math.exp(-n * kappa)) / (gamma * kappa)
        for n in range(9)
    ]
    for n in range(9):
        expected = sum(cost[n] - cost[k] for k in range(n)) / gamma
        value, psi = mixture_value_and_psi(0.0, kappa, gamma, weight, 3.0, float(n))
        assert value == pytest.approx(expected, rel=1e-13, abs=1e-300)
        assert psi == n / gamma


@pytest.mark.parametrize("signals", [2.0**60, 1e19, 1e30])
def test_the_staircase_goes_on_beyond_what_whole_numbers_of_the_machine_count(signals):
    gamma, kappa, weight = 2.0, 0.5, 0.25
    with mp.workdps(60):
        n = mp.mpf(signals)
        fresh = 1 / (mp.mpf(gamma) * (1 - mp.exp(-mp.mpf(kappa))))
        age = (n * (n + 1) / 2 / gamma - fresh / kappa) / gamma
        expected = (1 - mp.mpf(weight)) * fresh + mp.mpf(weight) * age
    value, psi = mixture_value_and_psi(0.0, kappa, gamma, weight, 1.0, signals)
    assert value == pytest.approx(float(expected), rel=1e-14)
    assert psi == signals / gamma


def test_limits_are_met():
    state = (0.3, 0.9, 0.5)
    fresh = value_and_psi(*state, 2.2, 2.0)
    almost = mixture_value_and_psi(*state, 1e-14, 2.2, 2.0)
    assert almost == pytest.approx(fresh, rel=1e-12)
    alone = mixture_value_and_psi(0.3, 0.0, 0.0, 0.4, 2.2, 0.0)
    assert mixture_value_and_psi(0.3, 0.9, 1e-12, 0.4, 2.2, 0.0) == pytest.approx(alone, rel=1e-9)
    weak = mixture_value_and_psi(0.3, 1e-5 * (1 - 1e-9), 4.0, 0.4, 2.2, 0.0)[0]
    assert mixture_value_and_psi(0.3, 1.00001e-5, 4.0, 0.4, 2.2, 0.0)[0] == pytest.approx(
        weak, rel=1e-3
    )
    certain = mixture_value_and_psi(0.3, math.inf, 0.5, 0.4, 2.2, 1.0)
    assert certain == mixture_value_and_psi(0.3, MOST_EVIDENCE, 0.5, 0.4, 2.2, 1.0)


def test_before_the_first_signal_age_is_the_mean_of_those_who_had_none_or_one():
    """Where signals do not lie: stale days before min(ι, first signal), simulated."""
    alpha, gamma, reach = 0.4, 0.7, 3.0
    rng = np.random.default_rng(3)
    end = np.minimum(rng.exponential(1 / gamma, 400_000), reach)
    stale = np.maximum(end - rng.exponential(1 / alpha, end.size), 0.0)
    grid = np.linspace(0.0, reach, 4_001)
    slopes = [mixture_slope(alpha, MOST_EVIDENCE, gamma, 1.0, alpha * y) * alpha for y in grid]
    age = float(np.sum(0.5 * (np.array(slopes[1:]) + slopes[:-1])) * (grid[1] - grid[0]))
    # The mean pace after the first signal adds 1/(1 + G).
    share = 1.0 / (1.0 + gamma * MOST_EVIDENCE / alpha)
    later = reach - (1.0 - math.exp(-alpha * reach)) / alpha
    assert (age - share * later) / (1.0 - share) == pytest.approx(stale.mean(), rel=0.01)


@settings(max_examples=80, deadline=None)
@given(
    st.floats(-12, 2),
    st.floats(-7, 3),
    st.floats(-5, 3),
    st.integers(1, 100),
    st.floats(-3, 3),
    st.integers(0, 400),
)
def test_value_rises_with_time_and_signals_and_is_a_number(la, lk, lg, percent, lt, n):
    page = 10.0**la, 10.0**lk, 10.0**lg, percent / 100
    days, signals = 10.0**lt, float(n)
    states = [(days, signals), (1.1 * days, signals), (days, signals + 0.5), (days, signals + 1.0)]
    values = [mixture_value_and_psi(*page, *state)[0] for state in states]
    assert all(math.isfinite(value) and value >= 0.0 for value in values)
    assert min(values[1:]) >= values[0] * (1 - 1e-9)


@settings(max_examples=80, deadline=None)
@given(st.floats(-6, 2), st.floats(-4, 2), st.floats(-5, 3), st.integers(1, 100), st.floats(-6, 8))
def test_inverse_of_the_mixture_is_where_its_value_gets_there(la, lk, lg, percent, lv):
    page, target = (10.0**la, 10.0**lk, 10.0**lg, percent / 100), 10.0**lv
    staleness, psi = mixture_threshold(*page, target)
    kappa = min(page[1], MOST_EVIDENCE)
    signals = math.floor(staleness / kappa)
    days = (staleness - signals * kappa) / page[0]
    value, again = mixture_value_and_psi(*page, days, float(signals))
    # Where a signal is worth ever so many days, the last digits of s are days.
    lost = 1e-15 * staleness / page[0]
    before = mixture_value_and_psi(*page, max(days - lost, 0.0), float(signals))[0]
    after = mixture_value_and_psi(*page, days + lost, float(signals))[0]
    assert before * (1 - 1e-7) <= target <= after * (1 + 1e-7)
    assert psi > 0.0
    assert math.isfinite(value)
    assert again > 0.0


def test_inverse_of_the_mixture_at_the_edges():
    assert mixture_threshold(0.5, 0.0, 0.0, 0.3, 0.0) == (0.0, 0.0)
    assert mixture_threshold(0.0, 0.0, 0.0, 0.3, 1.0) == (math.inf, math.inf)
    for kappa in (0.7, math.inf):
        staleness, psi = mixture_threshold(0.0, kappa, 0.4, 0.3, 50.0)
        signals = round(psi * 0.4)
        below = mixture_value_and_psi(0.0, kappa, 0.4, 0.3, 1.0, signals - 1.0)[0]
        at = mixture_value_and_psi(0.0, kappa, 0.4, 0.3, 1.0, float(signals))[0]
        assert below < 50.0 <= at
        assert (signals - 1) * min(kappa, MOST_EVIDENCE) < staleness
        assert staleness <= signals * min(kappa, MOST_EVIDENCE)
