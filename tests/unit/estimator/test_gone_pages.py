"""When a page is gone, or away for another reason, and what brings it back."""

import pytest
from test_effects import DAY, one_page, play, update

from services.estimator import effects
from services.estimator.columns import UPSERT
from shared.rules.page_events import (
    CHANGED,
    FAILED,
    GONE_FOR_GOOD,
    IS_DISALLOWED,
    IS_DUPLICATE,
    IS_GONE,
    IS_REDIRECTED,
    SIGNAL,
    UNCHANGED,
)
from shared.store.page_status import ACTIVE, DISALLOWED, DUPLICATE, GONE, REDIRECTED

AWAY_BY = [
    (GONE_FOR_GOOD, GONE),
    (IS_REDIRECTED, REDIRECTED),
    (IS_DUPLICATE, DUPLICATE),
    (IS_DISALLOWED, DISALLOWED),
]


@pytest.mark.parametrize(("kind", "status"), AWAY_BY)
def test_why_a_page_is_away_is_what_its_last_attempt_found(kind, status):
    shard = one_page()
    play(shard, (DAY, UNCHANGED))
    page = shard.pages[0]
    assert play(shard, (2 * DAY, kind)).verdicts.tolist() == [effects.APPLIED]
    assert (page["status"], page["misses"], page["failures"]) == (status, 3, 3)
    # It was not crawled: there is nothing to learn of its changes.
    assert (page["last_crawled_at"], page["crawls"], shard.rings.seen[0]) == (DAY, 1, 0)
    play(shard, (3 * DAY, FAILED))
    assert (page["status"], page["misses"], page["failures"]) == (GONE, 3, 4)
    play(shard, (4 * DAY, kind), (4 * DAY, kind), (3.5 * DAY, IS_GONE))
    assert (page["status"], page["misses"], page["failures"]) == (status, 4, 4)
    play(shard, (5 * DAY, SIGNAL))
    assert page["status"] == ACTIVE
    play(shard, (6 * DAY, kind))
    assert (page["status"], page["misses"]) == (status, 5)


@pytest.mark.parametrize(("kind", "status"), AWAY_BY)
def test_a_page_that_is_found_again_is_learned_from_as_before(kind, status):
    shard = one_page()
    play(shard, (DAY, UNCHANGED), (2 * DAY, kind), (4 * DAY, kind))
    page = shard.pages[0]
    assert page["status"] == status
    found = play(shard, (6 * DAY, CHANGED))
    assert found.verdicts.tolist() == [effects.OBSERVED]
    assert (found.interval_days[0], found.changed[0]) == (5.0, True)
    assert (page["status"], page["failures"], page["misses"]) == (ACTIVE, 0, 0)


def test_gone_pages_come_back_by_signal_upsert_or_crawl():
    for revive in (
        lambda shard: play(shard, (3 * DAY, SIGNAL)),
        lambda shard: update(shard, 3 * DAY, UPSERT),
        lambda shard: play(shard, (3 * DAY, UNCHANGED)),
    ):
        shard = one_page()
        play(shard, (DAY, UNCHANGED))
        results = play(shard, (2 * DAY, GONE_FOR_GOOD))
        assert shard.pages["status"][0] == GONE
        assert results.verdicts[0] == effects.APPLIED
        revive(shard)
        assert shard.pages["status"][0] == ACTIVE


def test_who_is_brought_back_is_gone_again_with_the_next_404():
    shard = one_page()
    play(shard, (2 * DAY, GONE_FOR_GOOD), (3 * DAY, SIGNAL))
    assert (shard.pages["status"][0], shard.pages["misses"][0]) == (ACTIVE, 3)
    play(shard, (4 * DAY, IS_GONE))
    assert (shard.pages["status"][0], shard.pages["misses"][0]) == (GONE, 4)


def test_a_crawl_before_the_last_signal_does_not_say_that_the_page_is_gone():
    for events in ([(2 * DAY, GONE_FOR_GOOD)], [(DAY, GONE_FOR_GOOD), (2 * DAY, IS_GONE)]):
        shard = one_page()
        play(shard, (3 * DAY, SIGNAL))
        for event in events:
            play(shard, event)
        assert shard.pages["status"][0] == ACTIVE


def test_a_copy_of_after_the_last_404_says_that_the_page_is_there():
    shard = one_page()
    play(shard, (2 * DAY, GONE_FOR_GOOD))
    update(shard, DAY, UPSERT, crawled_at=3 * DAY)
    assert (shard.pages["status"][0], shard.pages["misses"][0]) == (ACTIVE, 0)


def test_three_404s_in_a_row_say_that_a_page_is_gone():
    shard = one_page()
    play(shard, (DAY, IS_GONE), (2 * DAY, IS_GONE), (3 * DAY, UNCHANGED), (4 * DAY, IS_GONE))
    play(shard, (5 * DAY, FAILED), (6 * DAY, IS_GONE), (6 * DAY, IS_GONE))
    assert (shard.pages["status"][0], shard.pages["misses"][0]) == (ACTIVE, 2)
    play(shard, (7 * DAY, IS_GONE))
    assert (shard.pages["status"][0], shard.pages["misses"][0]) == (GONE, 3)
    assert (shard.pages["last_crawled_at"][0], shard.pages["crawls"][0]) == (3 * DAY, 1)


def test_what_was_seen_before_a_404_does_not_bring_a_page_back():
    shard = one_page()
    play(shard, (4 * DAY, GONE_FOR_GOOD))
    play(shard, (3 * DAY, UNCHANGED))
    play(shard, (3.5 * DAY, SIGNAL))
    assert shard.pages["status"][0] == GONE


def test_older_news_of_a_gone_page_does_not_undo_an_upsert():
    shard = one_page()
    update(shard, 3 * DAY, UPSERT)
    play(shard, (2 * DAY, GONE_FOR_GOOD))
    assert shard.pages["status"][0] == ACTIVE


def test_a_repeated_upsert_does_not_bring_back_a_page_that_went_since():
    shard = one_page()
    update(shard, DAY, UPSERT)
    play(shard, (2 * DAY, GONE_FOR_GOOD))
    update(shard, DAY, UPSERT, importance=2.0)
    assert (shard.pages["status"][0], shard.pages["importance"][0]) == (GONE, 2.0)
