"""Burst multipliers: the bins, the tables, and recovery of a burst from simulated crawls."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.policy.estimation.bursts import (
    age_bin,
    burst_multiplier,
    burst_multipliers,
    bursts_trusted,
    initial_bursts,
    trusts_bursts,
    update_bursts,
)


def test_bursts_are_used_only_where_enough_signals_prove_true():
    signals = np.array([[4.0, 0.0], [50.0, 50.0], [0.0, 0.0], [2.0, 3.0], [90.0, 10.0]])
    precision = np.array([[0.9, 0.9], [0.09, 0.02], [0.9, 0.9], [0.5, 0.5], [0.02, 0.9]])
    wanted = [False, False, False, True, True]
    assert bursts_trusted(signals, precision).tolist() == wanted
    assert [trusts_bursts(*pair) for pair in zip(signals, precision, strict=True)] == wanted


def test_what_a_source_sends_in_vain_takes_no_trust_from_another():
    precision = np.array([0.02, 0.9])
    assert [trusts_bursts(np.array([flood, 9.0]), precision) for flood in (0.0, 1e6)] == [True] * 2
    assert not trusts_bursts(np.array([1e6, 4.0]), precision)


@pytest.mark.parametrize(
    ("days", "wanted"),
    [
        (math.inf, 0),
        (math.nan, 0),
        (0.0, 1),
        (1e-6, 2),
        (6.99, 2),
        (7.0, 3),
        (29.9, 3),
        (30.0, 4),
        (119.0, 4),
        (120.0, 5),
        (1e9, 5),
    ],
)
def test_age_bins(days, wanted):
    assert age_bin(days) == wanted


def test_tables_start_neutral():
    expected, predicted = initial_bursts(3)
    assert expected.shape == (3, 6)
    assert (burst_multipliers(expected, predicted) == 1.0).all()


def test_one_crawl_by_hand():
    expected, predicted = initial_bursts(2)
    expected[1, 2] = 10.0
    multiplier = update_bursts(expected, predicted, 1, 2, 0.25, 2.0, True)
    exponent = 2.0 * 0.5
    assert expected[1, 2] == pytest.approx(10.0 + exponent / -math.expm1(-exponent))
    assert predicted[1, 2] == 5.5
    assert multiplier == pytest.approx(expected[1, 2] / 5.5)
    assert expected[0].tolist() == [5.0] * 6


def test_a_certain_change_at_no_exposure_counts_once():
    expected, predicted = initial_bursts(1)
    update_bursts(expected, predicted, 0, 0, 0.0, 1.0, True)
    assert (expected[0, 0], predicted[0, 0]) == (6.0, 5.0)


@pytest.mark.parametrize("truth", [0.3, 1.0, 4.0])
def test_recovers_the_multiplier(truth):
    rng = np.random.default_rng(11)
    expected, predicted = initial_bursts(1)
    days = rng.exponential(2.0, 20_000)
    changed = rng.random(days.size) < -np.expm1(-truth * 0.2 * days)
    for interval, change in zip(days, changed, strict=True):
        update_bursts(expected, predicted, 0, 3, 0.2, interval, change)
    # The table averages over its own past, so it nears a strong burst from below.
    assert burst_multiplier(expected[0, 3], predicted[0, 3]) == pytest.approx(truth, rel=0.12)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.booleans()), min_size=1, max_size=30
    )
)
def test_multipliers_stay_in_their_limits(crawls):
    expected, predicted = initial_bursts(1)
    for rate, days, changed in crawls:
        multiplier = update_bursts(expected, predicted, 0, 5, rate, days, changed)
        assert 0.1 <= multiplier <= 10.0
    table = burst_multipliers(expected, predicted)
    assert table[0, 5] == burst_multiplier(expected[0, 5], predicted[0, 5])


def test_one_long_interval_of_one_page_does_not_speak_for_its_host():
    expected, predicted = initial_bursts(1)
    for _ in range(40):
        update_bursts(expected, predicted, 0, 1, 0.5, 2.0, True)
    before = burst_multiplier(expected[0, 1], predicted[0, 1])

    # Twenty changes in a few hours, and then a month of quiet: 10,000 are predicted.
    after = update_bursts(expected, predicted, 0, 1, 355.0, 30.0, False)

    assert after == pytest.approx(before, rel=0.08)


@pytest.mark.parametrize("truth", [0.5, 2.0])
def test_intervals_that_count_for_less_do_so_whatever_was_found(truth):
    rng = np.random.default_rng(12)
    expected, predicted = initial_bursts(1)
    predictions = rng.exponential(4.0, 20_000)
    found = rng.random(predictions.size) < -np.expm1(-truth * predictions)
    for days, change in zip(predictions, found, strict=True):
        update_bursts(expected, predicted, 0, 3, 1.0, days, change)

    assert burst_multiplier(expected[0, 3], predicted[0, 3]) == pytest.approx(truth, rel=0.2)


def test_what_stands_from_when_intervals_counted_for_any_number_is_forgotten():
    expected, predicted = np.full((1, 6), 293.5), np.full((1, 6), 2_131_431.0)
    rng = np.random.default_rng(13)
    for change in rng.random(2_000) < -np.expm1(-1.8 * 0.4):
        multiplier = update_bursts(expected, predicted, 0, 1, 0.2, 2.0, change)

    assert multiplier == pytest.approx(1.8, rel=0.25)
