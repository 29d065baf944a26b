"""Equations 10 and 11 of [K] and naive precision and recall."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from shared.policy.estimation.change_rates import (
    change_rates_from_complete_signals,
    change_rates_from_crawls,
    naive_precision_recall,
    observation_rates,
)


def equation_10(rate, intervals, changed, pseudo):
    quiet = intervals[~changed].sum() + pseudo
    loud = np.append(intervals[changed], [pseudo] if pseudo else [])
    return (loud / np.expm1(np.minimum(rate * loud, 700))).sum() - quiet


@pytest.mark.parametrize("pseudo", [0.0, 0.5])
def test_equation_10_holds(pseudo):
    rng = np.random.default_rng(1)
    intervals = rng.exponential(2.0, 20 * 50)
    changed = rng.random(intervals.size) < 0.4
    offsets = np.arange(51) * 20
    rates = change_rates_from_crawls(intervals, changed, offsets, pseudo)
    for page in range(50):
        rows = slice(offsets[page], offsets[page + 1])
        root = brentq(
            equation_10, 1e-9, 1e4, args=(intervals[rows], changed[rows], pseudo), xtol=1e-13
        )
        assert rates[page] == pytest.approx(root, rel=1e-9)


def test_extreme_intervals_to_thirty_digits():
    intervals, changed = [1e-6, 1e3, 5.0], [1, 1, 0]
    rate = change_rates_from_crawls(intervals, changed, [0, 3])[0]
    with mpmath.workdps(30):
        root = mpmath.findroot(
            lambda x: sum(mpmath.mpf(a) / mpmath.expm1(a * x) for a in (1e-6, 1e3, 0.5)) - 5.5,
            rate * 1.01,
        )
    assert rate == pytest.approx(float(root), rel=1e-10)


def test_unsmoothed_has_its_singular_ends():
    rates = change_rates_from_crawls([1.0, 1.0, 2.0], [0, 1, 1], [0, 1, 3, 3], pseudo_interval=0)
    assert rates.tolist() == [0.0, np.inf, 0.0]


def test_recovers_the_rate():
    rng = np.random.default_rng(2)
    intervals = rng.exponential(1.0, 200_000)
    changed = rng.random(intervals.size) < -np.expm1(-0.7 * intervals)
    rate = change_rates_from_crawls(intervals, changed, [0, intervals.size])[0]
    assert rate == pytest.approx(0.7, rel=0.015)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e7), st.booleans()), max_size=30))
def test_smoothed_rate_is_always_positive_and_finite(history):
    rates = change_rates_from_crawls(
        [record[0] for record in history], [record[1] for record in history], [0, len(history)]
    )
    assert np.isfinite(rates).all()
    assert (rates > 0).all()


def test_complete_signals():
    assert change_rates_from_complete_signals([0, 3], [0, 9.5]).tolist() == [1.0, 0.35]
    assert observation_rates([3, 0], [8.0, 0.0]).tolist() == [0.5, np.inf]


def test_naive_precision_and_recall_by_hand():
    signals = np.array([[1, 0], [0, 2], [0, 0], [1, 1], [0, 0], [0, 0]])
    counted = naive_precision_recall(np.ones(6), signals, [1, 0, 1, 1, 0, 1], [0, 5, 6, 6])
    np.testing.assert_allclose(counted.precision, [2 / 3, 0.0, 0.0])
    np.testing.assert_allclose(counted.recall, [2 / 3, 0.0, 0.0])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"pseudo_interval is -1\.0"):
        change_rates_from_crawls([], [], [0], pseudo_interval=-1.0)
    with pytest.raises(ValueError, match="days must be finite"):
        change_rates_from_complete_signals([1], [np.nan])
    with pytest.raises(ValueError, match="pseudo_changes"):
        change_rates_from_complete_signals([1], [1], pseudo_changes=0.0)
