"""The rules of pages, written down once more."""

import pytest

from services.verify.simulation.reference import page_records
from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.store.page_status import ACTIVE, DISALLOWED, GONE
from shared.units import SECONDS_PER_DAY

URL = "http://a.example/"


def outcome(at, result="unchanged"):
    return CrawlOutcome(URL, at, "a.example", result=result)


def signal(at, source="feed"):
    return PageSignal(1, URL, "a.example", source, at)


def page_after(outcomes=(), signals=(), updates=()):
    first = PageUpdate("upsert", URL, importance=2.0, updated_at=1.0)
    return page_records([first, *updates], signals, outcomes)[URL]


def test_a_repeated_outcome_counts_once():
    page = page_after([outcome(10.0), outcome(20.0, "changed"), outcome(20.0, "changed")])
    assert (page.crawls, page.changes, page.last_crawled_at) == (2, 1, 20.0)
    assert page.observations == [(20.0, pytest.approx(10.0 / SECONDS_PER_DAY), True)]


def test_the_first_crawl_is_compared_with_nothing():
    page = page_after([outcome(10.0, "changed")])
    assert (page.crawls, page.changes, page.observations) == (1, 0, [])


def test_failures_count_until_a_crawl_reaches_the_page():
    page = page_after([outcome(10.0), outcome(12.0, "failed"), outcome(14.0, "failed")])
    assert (page.failures, page.crawls, page.last_attempt_at) == (2, 1, 14.0)
    assert page_after([outcome(12.0, "failed"), outcome(14.0)]).failures == 0


def test_a_page_is_away_until_it_is_named_or_crawled():
    away = [outcome(10.0), outcome(12.0, "disallowed")]
    page = page_after(away)
    assert (page.failures, page.misses, page.crawls, page.statuses) == (3, 3, 1, {DISALLOWED})
    assert page_after([*away, outcome(13.0, "failed")]).statuses == {GONE}
    assert page_after(away, [signal(11.0)]).statuses == {DISALLOWED}
    assert page_after(away, [signal(13.0)]).statuses == {ACTIVE}
    back = page_after([*away, outcome(14.0, "not_modified")])
    assert (back.misses, back.statuses, len(back.observations)) == (0, {ACTIVE}, 1)
    early = {signal(13.0)}
    update = PageUpdate("upsert", URL, updated_at=1.0)
    page = page_records([update], list(early), away, early)[URL]
    assert page.statuses == {DISALLOWED, ACTIVE}


def test_signals_that_came_out_of_order_count_by_how_they_were_batched():
    page = page_after(signals=[signal(5.0), signal(3.0), signal(7.0), signal(7.0)])
    assert (page.least_signals, page.most_signals) == (2, 3)


def test_each_source_tells_its_own_news():
    both = [signal(5.0), signal(3.0, "cms"), signal(5.0, "cms"), signal(5.0)]
    page = page_after(signals=both)
    assert (page.least_signals, page.most_signals) == (3, 3)


def test_a_signal_that_came_before_its_page_was_known_may_count_or_not():
    signals = [signal(5.0), signal(7.0)]
    page = page_records([PageUpdate("upsert", URL)], signals, [], {signals[0]})[URL]
    assert (page.least_signals, page.most_signals) == (1, 2)


def test_an_older_update_changes_nothing():
    removed = PageUpdate("remove", URL, updated_at=9.0)
    older = PageUpdate("upsert", URL, importance=7.0, updated_at=5.0)
    page = page_after(updates=[removed, older])
    assert (page.is_removed, page.importance) == (True, 2.0)


def test_events_of_unknown_pages_do_not_count():
    assert page_records([], [signal(1.0)], [outcome(1.0)]) == {}
