"""A week of a site whose sitemaps lie in the ways that engines report: what the estimator learns.

The poller's own reader and comparison turn documents into signals; the estimator's own code learns
from them and from what crawls find. Both run on virtual time.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from services.poller.sites.news import Comparison, Known, pack_known, unpack_known
from services.poller.sites.sitemaps import SitemapReader
from services.replay.trace import population_trace
from services.replay.virtual_estimator import Batch, VirtualEstimator

DAY, HOUR = 86_400.0, 3600.0
BEGIN = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
PAGES, DAYS, POLLS_A_DAY = 200, 7, 12
HONEST, OTHER = 0, 1

Stated = Callable[[float, float], str]
"""(Last change, time of generation) → what the sitemap says; both Unix seconds."""


def exact(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def day_of(seconds: float) -> str:
    return exact(seconds)[:10]


def honest(changed: float, _: float) -> str:
    return exact(changed)


def time_of_generation(_: float, now: float) -> str:
    return exact(now)


def date_of_generation(_: float, now: float) -> str:
    return day_of(now)


def date_of_change(changed: float, _: float) -> str:
    return day_of(changed)


def years_ahead(changed: float, _: float) -> str:
    return exact(changed + 3 * 365 * DAY)


class Source:
    """A sitemap, read as the poller reads it."""

    def __init__(self, stated: Stated) -> None:
        self._stated = stated
        self._known = Known({}, True)
        self.signals = 0

    def poll(self, urls, changed_at, now: float) -> tuple[list[str], list[float]]:
        comparison = Comparison(self._known, now, 7 * DAY)
        reader = SitemapReader(comparison.give)
        body = "".join(
            f"<url><loc>{url}</loc><lastmod>{self._stated(at, now)}</lastmod></url>"
            for url, at in zip(urls, changed_at.tolist(), strict=True)
        )
        reader.feed(f"<urlset>{body}</urlset>".encode())
        reader.close()
        self._known = unpack_known(pack_known(comparison.dates), is_first=False)
        said = [news for news in comparison.news if news.signals]
        self.signals += len(said)
        return [news.url for news in said], [news.observed_at for news in said]


def week(*stated: Stated) -> tuple[VirtualEstimator, list[Source]]:
    """A host's pages, crawled about once a day, with a sitemap in each slot."""
    rng = np.random.default_rng(5)
    nothing, nobody = np.empty(0), np.empty(0, np.int64)
    trace = replace(
        population_trace(np.ones(PAGES), *(nothing, nobody) * 2, days=1.0),
        host=np.zeros(PAGES, np.int64),
        site=np.zeros(1, np.int64),
        host_names=("a.example",),
        urls=tuple(f"https://a.example/d{n % 4}/{n}" for n in range(PAGES)),
        host_limit=np.full(1, np.inf),
        born_days=np.full(PAGES, BEGIN / DAY),
        held=np.ones(PAGES, np.bool_),
    )
    estimator = VirtualEstimator(trace, 0.0)
    estimator.add(np.arange(PAGES))
    rates = rng.gamma(1.0, 0.5, PAGES)
    sources = [Source(one) for one in stated]
    number = {url: row for row, url in enumerate(trace.urls)}
    changed_at = np.full(PAGES, BEGIN - 30 * DAY)
    crawled_at = np.full(PAGES, BEGIN)
    turn = HOUR * 24 / POLLS_A_DAY
    for poll in range(1, DAYS * POLLS_A_DAY + 1):
        now = BEGIN + poll * turn
        changes = rng.random(PAGES) < rates * turn / DAY
        # Crawls of the last minutes before a poll see what changed in the hour.
        changed_at[changes] = now - turn * (0.1 + 0.9 * rng.random(int(changes.sum())))
        crawled = np.flatnonzero(rng.random(PAGES) < turn / DAY)
        told = [source.poll(trace.urls, changed_at, now) for source in sources]
        pages = [number[url] for urls, _ in told for url in urls]
        times = [at for _, ats in told for at in ats]
        slots = [slot for slot, (urls, _) in enumerate(told) for _ in urls]
        batch = Batch(
            np.array(pages, np.int64),
            np.array(times) / DAY,
            np.array(slots, np.int64),
            crawled,
            np.full(crawled.size, now / DAY),
            changed_at[crawled] > crawled_at[crawled],
        )
        crawled_at[crawled] = now
        estimator.take(batch, now / DAY)
    return estimator, sources


def learned(stated: Stated) -> tuple[float, float, int]:
    """Precision of the honest sitemap and of another one beside it, whose signals are counted."""
    estimator, sources = week(honest, stated)
    precision = estimator.shard.hosts.learning.precision[0]
    return float(precision[HONEST]), float(precision[OTHER]), sources[OTHER].signals


@pytest.mark.slow(10)
@pytest.mark.parametrize("stated", [time_of_generation, date_of_generation])
def test_dates_of_generation_are_worth_next_to_nothing_within_a_week(stated):
    of_honest, of_liar, signals = learned(stated)
    assert signals >= DAYS * PAGES - PAGES
    assert of_liar < 0.05
    # And they take nothing from a source of the same host that tells the truth.
    assert of_honest > 0.9


@pytest.mark.slow(5)
def test_years_to_come_are_no_signals_at_all():
    of_honest, _, signals = learned(years_ahead)
    assert signals == 0
    assert of_honest > 0.9


@pytest.mark.slow(5)
def test_dates_without_times_are_fewer_signals_and_true_ones():
    of_honest, of_dates, signals = learned(date_of_change)
    assert signals > 0
    assert of_dates > 0.7
    assert of_honest > 0.7
