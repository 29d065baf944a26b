"""Freshness accounting against a brute-force account of every page, and what crawls find."""

import numpy as np
import pytest

from services.world.events import Changes, RecordedStream, Signals
from services.world.web import Web

NO_SIGNALS = Signals(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))


def stream_of(days: np.ndarray, pages: np.ndarray) -> RecordedStream:
    return RecordedStream(Changes(days, pages.astype(np.int64)), NO_SIGNALS, ["ping"])


def brute_force_staleness(days, pages, crawls, importance, held, end) -> float:
    """Σ μ·stale time / (Σ μ·T), page by page and interval by interval."""
    total = 0.0
    for page, weight in enumerate(importance):
        changed = sorted(d for d, p in zip(days, pages, strict=True) if p == page)
        bounds = [0.0, *sorted(d for d, p in crawls if p == page and d < end), end]
        for index in range(len(bounds) - 1):
            start, stop = bounds[index], bounds[index + 1]
            if index == 0 and not held[page]:
                total += weight * (stop - start)
                continue
            first = next((d for d in changed if start < d <= stop), None)
            if first is not None:
                total += weight * (stop - first)
    return total / (sum(importance) * end)


@pytest.mark.parametrize("seed", range(8))
def test_staleness_is_the_brute_force_account(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, end = 12, 5.0
    importance = rng.pareto(1.2, count) + 1
    held = rng.random(count) < 0.8
    days = np.sort(rng.uniform(0, end, 60))
    pages = rng.integers(0, count, 60)
    web = Web(importance, held, stream_of(days, pages), end)
    crawls = []
    for day in np.sort(rng.uniform(0, end + 0.5, 40)):
        chosen = rng.choice(count, rng.integers(1, 4), replace=False)
        web.crawl(chosen, float(day))
        crawls += [(day, page) for page in chosen]
    web.advance(end + 1)

    expected = brute_force_staleness(days, pages, crawls, importance, held, end)

    assert web.staleness() == pytest.approx(expected, rel=1e-12)
    assert len(web.daily_staleness) == 5
    assert np.mean(web.daily_staleness) == pytest.approx(expected, rel=1e-12)


def test_a_crawl_finds_each_change_once() -> None:
    web = Web(np.ones(2), np.ones(2, bool), stream_of(np.array([1.0, 1.5]), np.array([0, 0])))
    pages = np.array([0, 1, 0])

    assert web.crawl(pages, 0.5).tolist() == [False, False, False]
    assert web.crawl(pages, 2.0).tolist() == [True, False, False]
    assert web.crawl(pages, 3.0).tolist() == [False, False, False]
    assert web.versions(np.array([0, 1])).tolist() == [2, 0]


def test_a_page_never_crawled_is_stale_from_the_beginning() -> None:
    web = Web(np.array([3.0, 1.0]), np.array([False, True]), stream_of(np.empty(0), np.empty(0)))

    assert web.staleness_now() == 0.75
    assert web.crawl(np.array([0]), 2.0).tolist() == [True]
    assert web.staleness_now() == 0
    web.advance(4.0)
    assert web.staleness() == pytest.approx(0.75 / 2)


def test_a_change_at_the_moment_of_a_crawl_is_seen_by_it() -> None:
    web = Web(np.ones(1), np.ones(1, bool), stream_of(np.array([1.0]), np.array([0])))

    assert web.crawl(np.array([0]), 1.0).tolist() == [True]
    web.advance(2.0)
    assert web.staleness() == 0
