"""The books: freshness, penalties and ages of crawls, against sums done by hand."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import hand_made, paper_trace

from services.replay.books import settle
from services.replay.slots import Budget


def test_books_of_a_few_crawls_by_hand() -> None:
    trace = hand_made([(1.0, 0), (2.0, 0), (5.0, 1)])
    books = settle(trace, np.array([4.0, 6.0, 8.0]), np.array([0, 0, -1]))
    assert books.stale_days.tolist() == [3.0, 5.0]
    assert books.penalty_days.tolist() == pytest.approx([1.0 + 2 * 1.5, 5.0])
    assert books.age_days.tolist() == pytest.approx([3.0**2 / 2, 5.0**2 / 2])
    assert books.mean_age_days == pytest.approx((4.5 + 2 * 12.5) / 30.0)
    late = settle(replace(trace, judged_from=2.0), np.array([4.0, 6.0]), np.array([0, 0]))
    assert late.age_days.tolist() == pytest.approx([(3.0**2 - 1.0) / 2, 5.0**2 / 2])
    assert books.crawls.tolist() == [2, 0]
    assert books.unchanged.tolist() == [1, 0]
    assert books.oldest_days.tolist() == [4.0, 10.0]
    assert books.staleness == pytest.approx((3.0 + 2 * 5.0) / 30.0)
    assert books.harmonic_cost == pytest.approx((4.0 + 2 * 5.0) / 20.0)
    report = books.report()
    assert report["pages_never_crawled"] == 1
    assert report["unchanged_share"] == 0.5
    assert report["crawls_by_site"] == {"population": 2}


def test_the_series_averages_to_the_freshness() -> None:
    trace = paper_trace()
    slots = Budget.constant(20.0).slot_times(trace.days)
    books = settle(trace, slots, np.arange(slots.size) % len(trace))
    assert books.series_freshness.mean() == pytest.approx(1.0 - books.staleness)


def test_a_page_without_a_copy_is_stale_until_its_first_crawl() -> None:
    trace = replace(
        hand_made([(1.0, 0), (7.0, 0)]),
        born_days=np.array([2.0, 0.0]),
        held=np.array([False, True]),
    )
    books = settle(trace, np.array([5.0]), np.array([0]))
    # Known from day 2: without a copy until day 5, stale again from day 7.
    assert books.stale_days.tolist() == [6.0, 0.0]
    assert books.staleness == pytest.approx(6.0 / (8.0 + 2 * 10.0))


def test_changes_at_the_time_of_a_crawl_are_seen_by_it() -> None:
    books = settle(hand_made([(4.0, 0)]), np.array([4.0]), np.array([0]))
    assert books.stale_days[0] == 0.0
    assert books.unchanged[0] == 0


def test_requests_are_counted_by_what_they_find() -> None:
    trace = replace(
        hand_made([(1.0, 0), (4.0, 0), (5.0, 1)]),
        born_days=np.array([0.0, 2.0]),
        held=np.array([True, False]),
        request_days=np.array([0.5, 1.0, 1.5, 3.0, 3.0, 4.0, 6.0, 9.0]),
        request_pages=np.array([0, 0, 1, 0, 1, 0, 1, 0]),
    )
    books = settle(trace, np.array([2.0, 3.5, 5.0, 8.0]), np.array([0, 1, 0, -1]))
    # Page 1 is not known at day 1.5, has no copy at day 3, and is crawled before it changes.
    assert books.requests.tolist() == [5, 2]
    assert books.fresh_requests.tolist() == [3, 0]
    assert books.report()["requests"] == 7
    assert books.report()["fresh_request_share"] == pytest.approx(3 / 7)
    assert settle(trace.until(0.2), np.array([0.1]), np.array([0])).fresh_request_share is None


def test_many_requests_find_the_freshness() -> None:
    trace = paper_trace(days=200.0)
    slots = Budget.constant(20.0).slot_times(trace.days)
    rng = np.random.default_rng(4)
    weights = trace.importance / trace.importance.sum()
    asked = replace(
        trace,
        request_days=np.sort(rng.random(40_000) * trace.days),
        request_pages=rng.choice(len(trace), 40_000, p=weights),
    )
    books = settle(asked, slots, np.arange(slots.size) % len(trace))
    assert books.fresh_request_share == pytest.approx(1.0 - books.staleness, abs=0.01)


def test_nothing_counts_before_the_day_from_which_policies_are_judged() -> None:
    trace = hand_made([(1.0, 0), (2.0, 1), (7.0, 0)])
    slots, crawled = np.array([3.0, 6.0]), np.array([1, 0])
    late = settle(replace(trace, judged_from=4.0), slots, crawled)
    # Page 0 was stale before, and is until day 6; page 1 was, and is no more.
    assert late.stale_days.tolist() == [2.0 + 3.0, 0.0]
    assert late.penalty_days.tolist() == [2.0 + 3.0, 0.0]
    assert late.known_days.tolist() == [6.0, 6.0]
    assert late.staleness == pytest.approx(1.0 * 5.0 / (3.0 * 6.0))
    assert late.series_days.min() > 4.0
    assert late.series_freshness.mean() == pytest.approx(1.0 - late.staleness, abs=0.01)
    whole = settle(trace, slots, crawled)
    assert whole.stale_days.tolist() == [5.0 + 3.0, 1.0]
