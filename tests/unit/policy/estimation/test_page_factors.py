"""What directories and signals say of pages: found where it is there, and 1 where it is not."""

import numpy as np
import pytest

from shared.policy.estimation.host_priors import fit_host_priors, host_sums, initial_host_priors
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.page_factors import (
    ACTIVITY_BINS,
    LEAST_FACTOR,
    MOST_FACTOR,
    activity_bin,
    activity_bins,
    fit_page_factors,
    seen_rings,
)

SHAPE, RATE = np.array([0.5]), np.array([30.0])


def fitted(found, covered, group, activity, groups):
    host = np.zeros(len(found), np.int64)
    return fit_page_factors(
        np.asarray(found, float),
        np.asarray(covered, float),
        host,
        np.asarray(group),
        np.asarray(activity, np.uint8),
        SHAPE,
        RATE,
        groups,
    )


def test_bins_of_activity():
    ends = [0, 1, 2, 4, 8, 16, 64]
    assert [activity_bin(float(end)) for end in ends] == list(range(ACTIVITY_BINS))
    assert activity_bins(np.array([3, 7, 15, 63, 10_000])).tolist() == [2, 3, 4, 5, 6]


def test_a_dead_directory_beside_a_live_one():
    rng = np.random.default_rng(1)
    rate = np.repeat([0.001, 0.1], 200)
    covered = np.full(400, 100.0)
    found = rng.poisson(rate * covered)
    factors = fitted(found, covered, np.repeat([0, 1], 200), np.zeros(400), 2)
    dead, live = factors.directories
    assert live / dead > 30.0
    assert factors.weights == pytest.approx([200.0, 200.0], rel=0.5)


def test_what_nobody_has_seen_is_as_its_host():
    factors = fitted([], [], np.empty(0, np.int64), [], 3)
    assert factors.directories.tolist() == [1.0, 1.0, 1.0]
    assert factors.weights.tolist() == [0.0, 0.0, 0.0]
    assert (factors.activity == 1.0).all()


def test_more_signals_never_say_less_change():
    rng = np.random.default_rng(2)
    activity = rng.integers(0, ACTIVITY_BINS, 3000)
    # The fourth bin falls out of line, the others rise.
    rate = np.array([0.01, 0.02, 0.03, 0.005, 0.05, 0.06, 0.1])[activity]
    covered = np.full(3000, 60.0)
    found = rng.poisson(rate * covered)
    [factors] = fitted(found, covered, np.zeros(3000, int), activity, 1).activity
    assert (np.diff(factors) >= 0.0).all()
    assert factors[2] == factors[3]
    assert factors[6] / factors[0] == pytest.approx(10.0, rel=0.4)


def test_factors_are_bounded():
    covered = np.full(2000, 1e6)
    found = np.where(np.arange(2000) < 1000, 0.0, 1e9)
    factors = fitted(found, covered, np.repeat([0, 1], 1000), np.zeros(2000), 2)
    assert (factors.directories >= LEAST_FACTOR).all()
    assert (factors.directories <= MOST_FACTOR).all()
    assert np.isfinite(factors.activity).all()


def test_few_pages_move_a_factor_little():
    one = fitted([10.0], [1.0], [0], [0], 1).directories[0]
    assert one < 5.0, "where one page would say 600"
    many = fitted([10.0] * 300, [1.0] * 300, [0] * 300, [0] * 300, 1)
    assert one > 1.0
    # Of many the host says it, too: together it is more.
    assert many.weights[0] > 30 * fitted([10.0], [1.0], [0], [0], 1).weights[0]


def test_what_records_saw_is_changes_that_no_signal_announced():
    intervals = np.array([[2.0, 3.0], [4.0, 0.0]])
    signals = np.zeros((2, 2, 1))
    signals[0, 1, 0] = 1.0
    changed = np.array([[1, 1], [0, 0]], np.uint8)
    found, covered = np.empty(2), np.empty(2)
    seen_rings(
        np.arange(2),
        intervals,
        signals,
        changed,
        np.array([2, 1]),
        np.array([0.1, 0.1]),
        np.array([[0.7], [0.7]]),
        found,
        covered,
    )
    expected = 0.2 / -np.expm1(-0.2) + 0.3 / -np.expm1(-(0.3 + 0.7))
    assert found == pytest.approx([expected, 0.0])
    assert covered == pytest.approx([5.0, 4.0])


def test_with_factors_a_host_says_what_is_left():
    """Pages that differ by their directories alone are alike once that is known."""
    rng = np.random.default_rng(3)
    pages, days = 600, 20.0
    factor = np.where(np.arange(pages) % 2, 10.0, 0.1)
    alpha = 0.02 * factor
    intervals = np.full((pages, 8), days)
    signals = np.zeros((pages, 8, 1))
    changed = (rng.random((pages, 8)) < -np.expm1(-alpha * days)[:, None]).astype(np.uint8)
    count = np.full(pages, 8)
    out = MapColumns(np.zeros(pages), np.zeros((pages, 1)), np.zeros(pages))
    owner, rings = np.zeros(pages, np.int64), (intervals, signals, changed, count)

    def told(factors):
        priors = initial_host_priors(1, 1)
        for _ in range(8):
            own = priors._replace(
                shape=priors.shape[owner],
                rate=priors.rate[owner] / factors,
                precision=priors.precision[owner],
            )
            fit_rings_map(np.arange(pages), np.arange(pages), *rings, own, out)
            sums = host_sums(np.arange(pages), owner, 1, *out, *rings, priors, factors)
            priors = fit_host_priors(sums)
        return priors

    plain, known = told(np.ones(pages)), told(factor)
    assert known.shape[0] > 3 * plain.shape[0]
    assert known.shape[0] / known.rate[0] == pytest.approx(0.02, rel=0.35)
