"""The simpler values of the literature: what they are, and where they meet the exact one."""

import numpy as np
import pytest

from services.bench.random_pages import random_states
from shared.policy.approximations import (
    g_ncis_approximation,
    greedy_cis_plus_value,
    greedy_cis_value,
    greedy_value,
)
from shared.policy.model import PageParameters
from shared.policy.value import crawl_value


def test_enough_terms_are_the_exact_value():
    states = random_states(500, seed=21, most_terms=40)
    exact = crawl_value(3.0, *states.T)
    approximate = g_ncis_approximation(3.0, *states.T, terms=50)
    few = states[:, 4] + states[:, 3] * states[:, 0] / states[:, 1] < 49
    np.testing.assert_allclose(approximate[few], exact[few], rtol=1e-12)


def test_more_terms_come_closer_from_below():
    states = random_states(500, seed=22)
    exact = crawl_value(1.0, *states.T)
    previous = np.zeros(len(states))
    for terms in (1, 2, 3, 8, 30, 2000):
        values = g_ncis_approximation(1.0, *states.T, terms=terms)
        assert np.isfinite(values).all()
        assert (values >= previous * (1 - 1e-12)).all()
        assert (values <= exact * (1 + 1e-12)).all()
        previous = values
    np.testing.assert_allclose(previous, exact, rtol=1e-12)


def test_one_term_has_the_limit_of_the_text():
    """μ/(Δ+ν), not μ/Δ."""
    page = PageParameters.from_rates(2.0, 0.5, 0.6, 0.3)
    columns = (page.importance, page.alpha, page.kappa, page.gamma)
    value = g_ncis_approximation(*columns, 1e6, 0, terms=1)
    np.testing.assert_allclose(value, 2.0 / (0.5 + 0.3), rtol=1e-12)


def test_edges_of_the_approximation():
    for alpha, kappa, gamma, exact in (
        (0.5, 1.0, 0.0, True),
        (0.5, np.inf, 0.3, True),
        (0.0, 0.7, 0.3, False),
        (0.5, 0.0, 0.3, False),
    ):
        one = g_ncis_approximation(1.0, alpha, kappa, gamma, 2.0, 3, terms=1)[0]
        whole = crawl_value(1.0, alpha, kappa, gamma, 2.0, 3)[0]
        assert 0 < one <= whole
        assert bool(one == whole) is exact
    with pytest.raises(ValueError, match="1 or more"):
        g_ncis_approximation(1.0, 0.5, 1.0, 0.3, 1.0, 0, terms=0)


def test_greedy_ignores_signals_and_cis_believes_them():
    page = PageParameters.from_rates(2.0, 0.5, 0.6, 0.3)
    columns = (page.importance, page.alpha, page.kappa, page.gamma)
    u = 0.5 * 3.0
    np.testing.assert_allclose(greedy_value(*columns, 3.0), 4.0 * (1 - (1 + u) * np.exp(-u)))
    np.testing.assert_allclose(greedy_cis_value(*columns, 3.0, 1), 4.0)
    before = greedy_cis_value(*columns, 3.0, 0)
    np.testing.assert_allclose(before, crawl_value(2.0, 0.2, np.inf, 0.3, 3.0, 0))


def test_worthless_signals_are_not_believed():
    value = greedy_cis_value(1.0, 0.5, 0.0, 0.3, 2.0, 4)
    np.testing.assert_allclose(value, crawl_value(1.0, 0.5, 0.0, 0.0, 2.0, 0))


def test_cis_plus_believes_only_good_signals():
    noise = np.array([0.05, 0.05, 2.0])
    recall = np.array([0.9, 0.3, 0.9])
    page = PageParameters.from_rates(1.0, 0.5, recall, noise)
    columns = (page.importance, page.alpha, page.kappa, page.gamma)
    values = greedy_cis_plus_value(*columns, 1.0, 1)
    greedy = greedy_value(*columns, 1.0)
    np.testing.assert_allclose(values, [2.0, greedy[1], greedy[2]])
