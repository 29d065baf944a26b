"""Several signal sources as one: the mean of precisions, for one page and for columns."""

import numpy as np
import pytest

from shared.policy.estimation.sources import (
    effective_signal_evidence,
    mean_evidence,
    usual_mix,
)


def test_effective_evidence_averages_precisions():
    rates = np.array([[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]])
    evidence = np.array([[0.5, 2.0], [1.0, 1.0], [40.0, 3.0]])
    precision = (1 * -np.expm1(-0.5) + 3 * -np.expm1(-2.0)) / 4
    expected = [-np.log1p(-precision), 0.0, 40.0]
    np.testing.assert_allclose(effective_signal_evidence(rates, evidence), expected, rtol=1e-14)


def test_effective_evidence_keeps_tiny_and_infinite_jumps():
    tiny = effective_signal_evidence(np.array([1.0, 1.0]), np.array([1e-17, 3e-17]))
    assert tiny == pytest.approx(2e-17, rel=1e-12)
    assert effective_signal_evidence(np.array([1.0]), np.array([np.inf])) == np.inf


def test_columns_and_one_page_agree():
    rng = np.random.default_rng(3)
    rates, evidence = rng.integers(0, 4, (50, 3)).astype(float), rng.exponential(1.0, (50, 3))
    whole = effective_signal_evidence(rates, evidence)
    single = [mean_evidence(*pair) for pair in zip(rates, evidence, strict=True)]
    np.testing.assert_array_equal(whole, single)


def test_a_silent_host_has_its_first_source():
    own, none = np.array([0.0, 3.0]), np.zeros(2)
    assert usual_mix(np.array([none, own])).tolist() == [[1.0, 0.0], [0.0, 3.0]]
