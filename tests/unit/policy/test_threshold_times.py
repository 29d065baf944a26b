"""The inverse of the crawl value, and due times."""

import math

import numpy as np
import pytest

from services.bench.random_pages import random_states
from shared.policy.inverse import (
    due_after_days,
    threshold_staleness,
    threshold_time,
    threshold_time_and_rate,
)
from shared.policy.value import crawl_rate, crawl_value, crawl_value_at_evidence, crawl_value_slope


def test_inverse_of_the_value_is_the_time_wherever_the_slope_allows():
    alpha, kappa, gamma, elapsed, _ = random_states(3000, seed=4).T
    values = crawl_value(1.0, alpha, kappa, gamma, elapsed, 0)
    slope = crawl_value_slope(1.0, alpha, kappa, gamma, elapsed, 0)
    back = threshold_time(1.0, alpha, kappa, gamma, values)
    # a rounding of V moves ι by V·eps/V′
    told = slope * elapsed * 1e-10 > values * 2.3e-16
    assert told.mean() > 0.7
    np.testing.assert_allclose(back[told], elapsed[told], rtol=1e-9)


@pytest.mark.parametrize("kappa", [0.0, 1e-6, 0.1, 3.0, np.inf])
@pytest.mark.parametrize("gamma", [0.0, 1e-4, 0.5, 200.0])
def test_value_at_the_inverse_is_the_threshold(kappa, gamma):
    alpha = 0.3
    change_rate = alpha - (gamma * np.expm1(-kappa) if gamma else 0.0)
    thresholds = np.array([1e-12, 1e-6, 0.01, 0.3, 0.7, 0.97, 0.9999]) * 2.0 / change_rate
    iota, rate = threshold_time_and_rate(2.0, alpha, kappa, gamma, thresholds)
    values = crawl_value(2.0, alpha, kappa, gamma, iota, 0)
    np.testing.assert_allclose(values, thresholds, rtol=1e-11)
    np.testing.assert_allclose(rate, crawl_rate(alpha, kappa, gamma, iota, 0), rtol=1e-7)
    assert (np.diff(iota) > 0).all()
    assert (np.diff(rate) <= 0).all()


def test_never_worth_a_crawl_and_always_worth_one():
    iota, rate = threshold_time_and_rate(2.0, 0.5, 1.0, 0.0, [3.999, 4.0, 5.0, 0.0, -1.0])
    assert iota[0] < math.inf
    np.testing.assert_array_equal(iota[1:], [math.inf, math.inf, 0.0, 0.0])
    np.testing.assert_array_equal(rate[1:], [0.0, 0.0, math.inf, math.inf])
    assert threshold_time(0.0, 0.5, 1.0, 0.3, 0.1)[0] == math.inf
    assert threshold_time(1.0, 0.0, 1.0, 0.0, 0.1)[0] == math.inf


@pytest.mark.parametrize("kappa", [1e-5, 0.05, 0.9, 10.0, np.inf])
def test_completely_signalled_pages_are_due_at_the_first_signal_that_reaches_it(kappa):
    gamma = 2.0
    highest = 1 / (-gamma * np.expm1(-kappa))
    for share in (1e-9, 0.2, 0.9):
        threshold = share * highest
        staleness, rate = threshold_staleness(1.0, 0.0, kappa, gamma, threshold)
        signals = round(gamma / rate[0])
        values = crawl_value(1.0, 0.0, kappa, gamma, 9.0, [signals - 1, signals])
        assert values[0] < threshold <= values[1]
        evidence = np.array([signals - 1, signals]) * (
            kappa if signals > 1 or kappa < 99 else 1e300
        )
        due = due_after_days(staleness, 0.0, evidence)
        np.testing.assert_array_equal(due, [math.inf, 0.0])
        at = crawl_value_at_evidence(1.0, 0.0, kappa, gamma, 9.0, staleness)
        np.testing.assert_allclose(at, threshold, rtol=1e-10)


def test_due_time_moves_forward_with_evidence():
    staleness, _ = threshold_staleness(1.0, 0.25, 0.5, 0.4, 0.8)
    due = due_after_days(staleness, 0.25, [0.0, 0.5, 1e9, math.inf])
    assert due[0] == staleness[0] / 0.25
    assert due[1] == pytest.approx(due[0] - 2.0)
    np.testing.assert_array_equal(due[2:], [0.0, 0.0])
    assert due_after_days(math.inf, 0.25, math.inf)[0] == math.inf
    value = crawl_value(1.0, 0.25, 0.5, 0.4, due[1], 1)
    assert value[0] == pytest.approx(0.8, rel=1e-12)


@pytest.mark.parametrize("kappa", [0.0, 0.2, 1.2, 8.0, np.inf])
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.04])
def test_thresholds_within_rounding_of_the_highest_value(alpha, kappa):
    """The rate falls to zero there; it must never jump back up."""
    highest = 1.0 / (alpha - 0.012 * np.expm1(-kappa)) if alpha or kappa else 1.0
    thresholds = highest * (1.0 - np.array([1e-9, 1e-13, 1e-14, 4e-15, 2e-15, 1e-15, 2e-16, 0.0]))
    staleness, rates = threshold_staleness(1.0, alpha, kappa, 0.012, thresholds)
    assert not np.isnan(staleness).any()
    assert (np.diff(rates) <= 1e-9 * rates[0]).all()
    assert (rates <= 0.012 + alpha).all()
    assert rates[-1] == 0.0
