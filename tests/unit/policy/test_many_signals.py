"""The crawl value after signals by the million: exact, and at the cost of few."""

import math

import mpmath as mp
import numpy as np
import pytest

from services.bench.value_reference import regularised_gamma
from shared.contracts.objectives import FRESHNESS, HARMONIC
from shared.policy.kernels import noisy
from shared.policy.kernels.harmonic import staircase_value
from shared.policy.kernels.noisy import noisy_value_and_psi
from shared.policy.kernels.special import poisson_tail_of_many
from shared.policy.objectives import (
    jump_of,
    objective_threshold_scalar,
    objective_value_scalar,
)
from shared.policy.value import value_and_psi

MOST_STEPS = 500
"""Waves or terms of one value: none has more, whatever the number of signals."""


def reference(alpha, kappa, gamma, elapsed, signals):
    """(V/μ, ψ) for `elapsed` < β: terms whose P is 1 to sixty digits as geometric series, the
    others as [N] has them."""
    with mp.workdps(90):
        a, k, g, t = map(mp.mpf, (alpha, kappa, gamma, elapsed))
        c, beta, s = a + g, k / a, a * t + k * signals
        whole, end = 0, signals + 1
        while whole < end:
            middle = (whole + end) // 2
            reach = g * (t + (signals - middle) * beta)
            if reach > middle + 60 * math.sqrt(middle + 1) + 400:
                whole = middle + 1
            else:
                end = middle
        ratio = mp.exp(-k) * g / c
        psi = mp.mpf(whole) / g
        value = (1 - ratio**whole) / (1 - ratio) / c - mp.exp(-s) * psi
        for i in range(whole, signals + 1):
            x = t + (signals - i) * beta
            reach = regularised_gamma(i, g * x) / g
            first = (g / c) ** i * regularised_gamma(i, c * x) / c
            psi += reach
            value += mp.exp(-i * k) * (first - mp.exp(-a * x) * reach)
        return value, psi


def assert_exact(state, signals):
    value, psi = noisy_value_and_psi(*state, float(signals))
    expected_value, expected_psi = reference(*state, signals)
    assert abs(value / expected_value - 1) <= 1e-12
    assert abs(psi / expected_psi - 1) <= 1e-12


@pytest.mark.parametrize("staleness", [1e-7, 0.4, 20.0])
@pytest.mark.parametrize(("signals", "strength"), [(900, 1000.0), (10_000, 1e6), (3_000_000, 1e9)])
def test_value_after_many_signals_matches_the_textbook_sums(signals, strength, staleness):
    gamma, kappa = 300.0, staleness / signals
    alpha = gamma * kappa / strength
    for share in (0.0, 0.7):
        assert_exact((alpha, kappa, gamma, share * kappa / alpha), signals)


@pytest.mark.slow(4)
@pytest.mark.parametrize("staleness", [1e-7, 5.0])
def test_value_amid_the_terms_of_many_signals_matches_the_textbook_sums(staleness):
    """Days enough for the last term to be half there, and a signal counts for a few times more."""
    signals = 120_000
    gamma, kappa = 300.0, staleness / signals
    alpha = gamma * kappa / (4.0 * signals)
    assert_exact((alpha, kappa, gamma, (signals + 100.0) / gamma), signals)


@pytest.mark.slow(1)
@pytest.mark.parametrize("deviations", [-3.0, 0.5, 3.0])
def test_a_tail_of_many_is_the_incomplete_gamma_function(deviations):
    i = 100_000
    x = i + 1 + deviations * math.sqrt(i)
    with mp.workdps(40):
        expected = regularised_gamma(i, mp.mpf(x))
    assert abs(poisson_tail_of_many(float(i), x) - expected) <= 1e-14


def test_a_tail_of_many_is_a_number_wherever_it_ends():
    ends = [poisson_tail_of_many(1e9, x) for x in (0.0, 1e-300, 1.0, 9e8, 1.1e9, 1e300)]
    assert ends == [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]


class Steps:
    """Counts what a value is made of, by the kernels' Python."""

    def __init__(self, monkeypatch):
        self.count = 0
        spectrum, term, tail = noisy._spectrum, noisy.term, noisy.poisson_tail

        def counted(steps, kernel, *arguments):
            self.count += int(steps)
            assert self.count <= MOST_STEPS
            return kernel(*arguments)

        # Compiled with each other before they are counted.
        term(1.0, 1.0, 1.0, 1.0)
        tail(1.0, 1.0)
        for name in ("noisy_value_and_psi", "_sum_of_terms"):
            monkeypatch.setattr(noisy, name, getattr(noisy, name).py_func)
        monkeypatch.setattr(noisy, "_spectrum", lambda *a: counted(a[-1], spectrum, *a))
        monkeypatch.setattr(noisy, "term", lambda *a: counted(1, term, *a))
        monkeypatch.setattr(noisy, "poisson_tail", lambda *a: counted(1, tail, *a))


@pytest.mark.slow(3)
def test_a_value_has_few_waves_or_terms_however_many_signals_there_are(monkeypatch):
    """A page with a million signals that its host's limit kept waiting took as long as a hundred
    thousand others, and its threshold under an objective without a bound seconds."""
    rng = np.random.default_rng(17)
    steps = Steps(monkeypatch)
    for _ in range(400):
        signals = float(np.floor(10.0 ** rng.uniform(2, 18)))
        strength = 10.0 ** rng.uniform(-6, 30)
        kappa = 10.0 ** rng.uniform(-9, 1.6)
        alpha = 10.0 * kappa / strength
        steps.count = 0
        value, psi = noisy.noisy_value_and_psi(
            alpha, kappa, 10.0, rng.uniform(0, 3) * kappa / alpha, signals
        )
        assert 0.0 <= value < math.inf
        assert 0.0 < psi < math.inf


@pytest.mark.parametrize("objective", [1, 26, HARMONIC])
def test_thresholds_of_pages_that_wait_for_billions_of_signals_are_where_the_value_is(objective):
    """Unimportant pages on which nearly every change is signalled, all the time."""
    for alpha, kappa, gamma, target in (
        (2.7e-8, 5.46, 2e5, 6.6e9),
        (7.4e-5, 7.75, 3.5e4, 1.5e5),
        (1e-3, 2.0, 1000.0, 5e6),
    ):
        index, psi = objective_threshold_scalar(objective, alpha, kappa, gamma, target)
        signals = np.floor(index / jump_of(objective, kappa))
        before, after = (
            objective_value_scalar(objective, alpha, kappa, gamma, 0.0, signals + more)
            for more in (0.0, 1.0)
        )
        assert before * (1 - 1e-9) <= target <= after * (1 + 1e-9)
        assert 0.0 < psi < math.inf


def test_more_signals_than_can_be_counted_still_have_a_value():
    """All are alike there: the copy is stale, and a crawl in so many signals' time is enough."""
    for signals in (1e15, 1e18, 1e30):
        value, psi = value_and_psi(1e-20, 0.5, 4.0, 1.0, signals)
        assert value == pytest.approx(-1.0 / (4.0 * math.expm1(-0.5)), rel=1e-12)
        assert psi == pytest.approx(signals / 4.0, rel=1e-12)


@pytest.mark.parametrize(
    ("kappa", "signals"),
    [(1e-4, 300), (3e-7, 99_999), (3e-7, 100_001), (1e-12, 9e10), (1e-40, 1e18)],
)
def test_a_staircase_of_many_steps_matches_the_sum_of_all(kappa, signals):
    with mp.workdps(120):
        q, n = mp.exp(-mp.mpf(kappa)), mp.mpf(signals)
        expected = (n - q * (1 - q**n) / (1 - q)) / 3
    assert abs(staircase_value(kappa, 3.0, float(signals)) / expected - 1) <= 1e-14


@pytest.mark.parametrize("kappa", [7e-44, 1e-20, 1e-17, 1e-9])
@pytest.mark.parametrize("objective", [FRESHNESS, 1, HARMONIC])
def test_where_next_to_nothing_is_known_of_signals_and_all_else_a_threshold_is_found(
    objective, kappa
):
    reached, psi = objective_threshold_scalar(objective, 0.0, kappa, 5.0, 3.0)
    assert reached > 0.0
    assert psi > 0.0
