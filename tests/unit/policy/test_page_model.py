"""The page model: conversions between its forms, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.policy.model import InvalidPage, PageParameters, as_columns


@given(
    change_rate=st.floats(1e-6, 1e3),
    recall=st.floats(0.0, 1.0),
    noise=st.floats(1e-9, 1e3) | st.just(0.0),
)
def test_rates_survive_the_round_trip(change_rate, recall, noise):
    pages = PageParameters.from_rates(2.0, change_rate, recall, noise)
    pages.validate()
    np.testing.assert_allclose(pages.change_rate, change_rate, rtol=1e-12)
    np.testing.assert_allclose(pages.recall, recall, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(pages.false_signal_rate, noise, rtol=1e-9, atol=1e-12 * change_rate)
    np.testing.assert_allclose(pages.gamma, recall * change_rate + noise, rtol=1e-12)


def test_display_form():
    pages = PageParameters.from_rates([1, 1, 1], 0.5, [0.5, 0.0, 1.0], [0.1, 0.2, 0.0])
    back = PageParameters.from_display(pages.importance, pages.alpha, pages.beta, pages.gamma)
    np.testing.assert_allclose(back.kappa, [np.log(3.5), 0.0, np.inf])
    np.testing.assert_allclose(back.alpha, pages.alpha)
    np.testing.assert_allclose(pages.precision, [0.25 / 0.35, 0.0, 1.0])
    assert pages.beta[1] == 0.0
    assert np.isinf(pages.beta[2])


def test_tiny_precision_keeps_its_digits():
    pages = PageParameters.from_rates(1.0, 1.0, 1e-9, 1e3)
    assert pages.kappa[0] == pytest.approx(1e-12, rel=1e-12)


def test_highest_value():
    pages = PageParameters.from_columns([3.0, 3.0, 0.0], [0.5, 0.0, 0.0], 1.0, 0.0)
    np.testing.assert_array_equal(pages.highest_value, [6.0, np.inf, 0.0])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("importance", -1.0),
        ("importance", np.inf),
        ("alpha", np.nan),
        ("alpha", -0.1),
        ("kappa", -1e-9),
        ("kappa", np.nan),
        ("gamma", np.inf),
    ],
)
def test_refuses_with_page_value_and_remedy(column, value):
    columns = dict.fromkeys(("importance", "alpha", "kappa", "gamma"), np.ones(3))
    bad = np.ones(3)
    bad[1] = value
    pages = PageParameters(**(columns | {column: bad}))
    with pytest.raises(InvalidPage, match=rf"page row 1: {column} is .*must be"):
        pages.validate()
    with pytest.raises(InvalidPage, match="'https://b/'"):
        pages.validate(["https://a/", "https://b/", "https://c/"])


def test_refuses_columns_of_different_lengths():
    with pytest.raises(InvalidPage, match="different lengths"):
        PageParameters(np.ones(2), np.ones(2), np.ones(3), np.ones(2)).validate()
    with pytest.raises(ValueError, match="one row a page"):
        as_columns([1.0, 2.0], [1.0, 2.0, 3.0])


def test_rows_and_empty_columns():
    pages = PageParameters.from_columns([1.0, 2.0, 3.0], 0.1, 0.2, 0.3)
    np.testing.assert_array_equal(pages[np.array([2, 0])].importance, [3.0, 1.0])
    assert len(pages[pages.importance > 5]) == 0
    assert len(PageParameters.from_columns([], 0.1, 0.2, 0.3)) == 0
