"""Tables of crawl rates: against the exact inverse, page by page and summed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.policy.kernels.rate_tables import STEP, make_tables, rates_by_tables
from shared.policy.kernels.threshold import threshold_staleness_scalar

pytestmark = pytest.mark.slow(1)  # the tables are made: three seconds

PAGE = np.dtype([(name, np.float32) for name in ("importance", "alpha", "kappa", "gamma")])
GRID = np.exp(STEP * np.arange(-60, 1))


@pytest.fixture(scope="module")
def tables():
    return make_tables()


def rates_of(tables, pages, grid=GRID):
    rates = np.zeros((pages.size, grid.size))
    reached = np.empty(pages.size, np.int64)
    rates_by_tables(tables, pages, math.log(grid[0]), rates, reached)
    assert all((row[count:] == 0.0).all() for row, count in zip(rates, reached, strict=True))
    return rates


def exact_rates(page, grid=GRID):
    importance, alpha, kappa, gamma = (float(page[name]) for name in PAGE.names)
    psi = [threshold_staleness_scalar(alpha, kappa, gamma, t / importance)[1] for t in grid]
    return 1.0 / np.array(psi)


@settings(max_examples=60, deadline=None)
@given(st.floats(-9, 9), st.floats(-9, 9))
def test_without_signals_each_page_is_right(tables, log_importance, log_alpha):
    page = np.array([(math.exp(log_importance), math.exp(log_alpha), 0.7, 0.0)], PAGE)
    expected = exact_rates(page[0])
    found = rates_of(tables, page)[0]
    assert found == pytest.approx(expected, rel=1e-4, abs=0.1 * float(page["alpha"][0]))
    clear = expected > 0.3 * page["alpha"][0]
    assert found[clear] == pytest.approx(expected[clear], rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.floats(-4, 4), st.floats(-6, 3), st.floats(-6, 5), st.floats(-3, 3))
def test_with_signals_rates_are_bounded_and_fall(tables, weight, alpha, gamma, kappa):
    page = np.array([tuple(math.exp(x) for x in (weight, alpha, kappa, gamma))], PAGE)
    found = rates_of(tables, page)[0]
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()
    expected = exact_rates(page[0])
    assert found.sum() == pytest.approx(expected.sum(), rel=0.05, abs=0.2 * float(found.max()))


def test_a_mixture_adds_up(tables):
    rng = np.random.default_rng(4)
    pages = np.zeros(6000, PAGE)
    pages["importance"] = rng.lognormal(0, 1, pages.size)
    pages["alpha"] = rng.lognormal(-3, 1.5, pages.size)
    pages["gamma"] = rng.lognormal(-2, 1.5, pages.size)
    pages["kappa"] = rng.lognormal(-0.5, 1, pages.size)
    grid = np.exp(STEP * np.arange(-40, 8))
    found = rates_of(tables, pages, grid).sum(axis=0)
    expected = np.sum([exact_rates(page, grid) for page in pages], axis=0)
    likely = expected > 1e-3 * expected[0]
    assert found[likely] == pytest.approx(expected[likely], rel=3e-3)


def test_pages_that_ask_for_nothing_and_thresholds_below_the_tables(tables):
    pages = np.array([(0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.7, 0.0), (1e-12, 1.0, 0.7, 0.3)], PAGE)
    assert not rates_of(tables, pages).any()
    deep = np.exp(STEP * np.arange(-100, -90))
    for signals in (0.0, 0.5):
        page = np.array([(1.0, 0.5, 0.7, signals)], PAGE)
        assert rates_of(tables, page, deep)[0] == pytest.approx(
            exact_rates(page[0], deep), rel=2e-3
        )
    deepest = np.exp(STEP * np.arange(-300, -290))
    page = np.array([(1.0, 0.5, 0.7, 0.0)], PAGE)
    assert rates_of(tables, page, deepest)[0] == pytest.approx(exact_rates(page[0], deepest))
