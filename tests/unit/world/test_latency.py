"""Quantiles from logarithmic bins."""

import numpy as np
import pytest

from services.world.latency import LatencyHistogram


def test_quantiles_are_exact_to_the_width_of_a_bin() -> None:
    rng = np.random.default_rng(1)
    seconds = rng.lognormal(-3, 1.5, 30_000)
    histogram = LatencyHistogram()
    for value in seconds:
        histogram.add(float(value))

    for share in (0.5, 0.9, 0.99):
        expected = np.quantile(seconds, share, method="inverted_cdf")
        assert histogram.quantile(share) == pytest.approx(expected, rel=0.025)
    assert histogram.count == 30_000


def test_nothing_has_no_quantile() -> None:
    assert LatencyHistogram().summary() == {"p50": None, "p99": None, "count": 0}


def test_durations_beyond_the_ends_are_kept_at_them() -> None:
    histogram = LatencyHistogram()
    for value in (-1.0, 0.0, 1e9):
        histogram.add(value)

    assert histogram.count == 3
    assert histogram.quantile(0.1) == pytest.approx(1e-4, rel=0.03)
    assert histogram.quantile(1.0) > 5_000
