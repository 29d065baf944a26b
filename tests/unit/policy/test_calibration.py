"""Calibration where the truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.policy.calibration import (
    TENTHS,
    Crawls,
    by_age,
    chance_of,
    compare,
    freshness,
    moments_of_change,
    tenth_of,
)
from shared.policy.estimation.prediction import expected_fresh_days, mean_decay
from shared.units import SECONDS_PER_DAY

PAGES, CRAWLS = 2000, 20


def world(seed, believed=1.0, uniform=False, scale=1.0, pages=PAGES, each=CRAWLS):
    """Pages that change at random and are crawled at any intervals; rates are believed to be so
    many times what they are, and each page has so many crawls. Returns the crawls, and the true
    changes by page."""
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(-1.5, 1.0, pages)
    days = scale * (rng.exponential(1.0, (pages, each)) + 0.05)
    if not uniform:
        # As a scheduler does it: what changes more is crawled sooner.
        days /= np.sqrt(rates)[:, np.newaxis]
    times = days.cumsum(axis=1)
    changes = [
        np.sort(rng.uniform(0.0, end, rng.poisson(rate * end)))
        for rate, end in zip(rates, times[:, -1], strict=True)
    ]
    changed = np.array(
        [
            np.diff(np.searchsorted(of_page, [0.0, *ends])) > 0
            for of_page, ends in zip(changes, times, strict=True)
        ]
    )
    staleness = believed * rates[:, np.newaxis] * days
    fresh = days * -np.expm1(-staleness) / staleness
    crawls = Crawls(
        np.repeat(np.arange(pages), each),
        times.ravel() * SECONDS_PER_DAY,
        days.ravel(),
        changed.ravel(),
        staleness.ravel(),
        fresh.ravel(),
        np.ones(days.size),
    )
    return crawls, changes, times


def true_freshness(changes, times):
    """The share of time for which copies were the pages', crawls being at `times`."""
    fresh = 0.0
    for of_page, ends in zip(changes, times, strict=True):
        begins = np.concatenate([[0.0], ends[:-1]])
        places = np.searchsorted(of_page, begins)
        first = np.append(of_page, np.inf)[places]
        fresh += float((np.minimum(first, ends) - begins).sum())
    return fresh / float(times[:, -1].sum())


def by_decile(crawls):
    chances = chance_of(crawls.staleness)
    tenths = tenth_of(chances)
    return [compare(chances[tenths == k], crawls.changed[tenths == k]) for k in range(TENTHS)]


@pytest.mark.parametrize("uniform", [False, True])
def test_true_predictions_give_a_straight_line(uniform):
    crawls, _, _ = world(1, uniform=uniform)
    for found in by_decile(crawls):
        assert abs(found.found - found.predicted) < 4 * found.error


def test_predictions_twice_too_high_are_shown_as_such():
    crawls, _, _ = world(2, believed=2.0)
    low = by_decile(crawls)[0]
    assert low.found / low.predicted == pytest.approx(0.5, abs=0.08)
    assert all(found.predicted - found.found > 4 * found.error for found in by_decile(crawls))


def test_freshness_from_crawls_is_the_true_one():
    crawls, changes, times = world(3)
    found, truth = freshness(crawls), true_freshness(changes, times)
    assert found.found.value == pytest.approx(truth, abs=4 * found.difference.error)
    assert abs(found.difference.value) < 4 * found.difference.error


@pytest.mark.slow(1)
@pytest.mark.parametrize("heavy", [False, True])
def test_the_difference_lies_within_its_error_as_often_as_it_says(heavy):
    # Where importance is heavy-tailed, few pages weigh more than all others together.
    far = []
    for seed in range(300):
        crawls, _, _ = world(seed, pages=300, each=8)
        drawn = np.minimum(1.0 + np.random.default_rng([seed, 1]).pareto(1.2, 300), 1000.0)
        weights = drawn if heavy else np.ones(300)
        found = freshness(crawls._replace(importance=np.repeat(weights, 8))).difference
        far.append(abs(found.value) > 2.0 * found.error)
    # 0.046 of a normal law; 0.086 are 3.3 standard errors above that.
    assert np.mean(far) < 0.086


@pytest.mark.parametrize("believed", [0.5, 0.7, 1.5, 2.0])
def test_crawls_put_most_of_a_wrong_expectation_right(believed):
    crawls, changes, times = world(3, believed)
    found, truth = freshness(crawls), true_freshness(changes, times)
    # A rate that is wrong moves changes within their intervals, too.
    assert abs(found.found.value - truth) < 0.25 * abs(found.expected - truth)
    assert abs(found.difference.value) > 10 * found.difference.error
    assert found.least <= truth


@pytest.mark.parametrize(("scale", "kindness"), [(1.0, 0.06), (0.05, 0.002)])
def test_ages_are_replayed_on_what_crawls_found(scale, kindness):
    crawls, changes, times = world(4, scale=scale)
    rng, revisit = np.random.default_rng(5), 3.0 * scale
    fresh = 0.0
    for of_page, ends in zip(changes, times, strict=True):
        own = np.arange(rng.uniform(0.0, revisit), ends[-1], revisit)
        own = np.append(own, ends[-1])
        fresh += true_freshness([of_page], own[np.newaxis]) * own[-1]
    truth = fresh / float(times[:, -1].sum())
    found = by_age(crawls, revisit)
    # It is kind to the ages where an interval may have several changes: it knows of one.
    assert -3 * found.found.error < found.found.value - truth < kindness + 3 * found.found.error
    assert found.least_gain <= found.gain.value <= found.most_gain


def crawl_of(days, changed, page=1, staleness=0.5):
    days = np.asarray(days, np.float64)
    s = np.full(days.size, staleness)
    return Crawls(
        np.full(days.size, page, np.int64),
        days.cumsum() * SECONDS_PER_DAY,
        days,
        np.asarray(changed, np.bool_),
        s,
        days * -np.expm1(-s) / s,
        np.ones(days.size),
    )


def test_a_change_is_stale_until_the_next_visit_by_age():
    crawls = crawl_of([10.0, 10.0], [True, False], staleness=1e-9)
    # A change at day 5, visits every 4 days: stale for 2 days on average, of 20.
    assert by_age(crawls, 4.0).found.value == pytest.approx(0.9)
    # Every 30 days: ∫₀¹⁵ (1 − y/30) dy = 11.25 days.
    assert by_age(crawls, 30.0).found.value == pytest.approx(1 - 11.25 / 20)


def test_what_is_not_known_between_intervals_ends_a_replay():
    crawls = crawl_of([10.0, 10.0], [True, False], staleness=1e-9)
    apart = crawls._replace(crawled_at=crawls.crawled_at + np.array([0.0, 3.0]) * SECONDS_PER_DAY)
    # Stale for 5 of 20 days at most: to the end of the first interval.
    assert by_age(apart, 30.0).found.value == pytest.approx(1 - (5 - 25 / 60) / 20)


def test_one_page_has_no_error():
    found = freshness(crawl_of([1.0, 2.0], [True, False]))
    assert math.isnan(found.found.error)
    assert 2 / 3 < found.found.value < 1


@settings(deadline=None)  # The first call compiles.
@given(
    st.floats(0.0, 50.0),
    st.floats(1e-6, 400.0),
    st.floats(0.0, 30.0),
    st.integers(1, 30),
    st.floats(-1.0, 2.0),
)
def test_expected_fresh_days_are_the_integral(rate, days, evidence, signals, place):
    last = min(max(place, 0.0), 1.0) * days
    total = 0.0
    for part in range(signals + 1):
        begin = last * part / signals
        end = last * (part + 1) / signals if part < signals else days
        seen = evidence * part / signals + rate * begin
        total += math.exp(-seen) * (end - begin) * mean_decay(rate * (end - begin))
    found = expected_fresh_days(rate, days, evidence, signals, place * days)
    assert found == pytest.approx(total, rel=1e-6, abs=1e-9 * days)
    assert 0.0 <= found <= days * (1 + 1e-9)


@given(st.floats(0.0, 100.0), st.floats(1e-3, 100.0))
def test_a_change_lies_in_its_interval(staleness, days):
    crawls = crawl_of([days], [True], staleness=max(staleness, 1e-300))
    (moment,) = moments_of_change(crawls)
    assert 0.0 <= moment <= 0.5 * days * (1 + 1e-9)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_each_chance_has_its_tenth(chances):
    tenths = tenth_of(np.array(chances))
    assert ((tenths >= 0) & (tenths < TENTHS)).all()
    found = compare(np.array(chances), np.zeros(len(chances), np.bool_))
    assert found.predicted == pytest.approx(sum(chances) / len(chances))
