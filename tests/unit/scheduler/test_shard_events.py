"""Signals, outcomes, updates and parameters: late, twice, out of order, and about nobody."""

import math

import numpy as np
import pytest
from reference_shard import DAY, NEVER, PageView, World, rules, url_of

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state import rows as pages
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.packing import days_since_change
from shared.contracts.messages import PageUpdate
from shared.contracts.request_ids import NO_REQUEST, microseconds
from shared.rules.page_events import (
    COMPARE,
    FAILED,
    GONE_FOR_GOOD,
    IS_DISALLOWED,
    IS_DUPLICATE,
    IS_GONE,
    IS_REDIRECTED,
    UNCHANGED,
)
from shared.store import page_status

NOW = 1.7e9


def upsert(shard, identity, at, **more):
    return shard.upsert(identity, PageUpdate("upsert", identity.url, **more), at)


def row_of(shard, identity):
    return PageView(shard, identity.page_id)


def crawled_world(**settings):
    world = World(rules(**settings))
    page = world.add_page("a", 1, NOW - DAY, last_crawled_at=NOW, last_attempt_at=NOW)
    return world, page.page_id, row_of(world.shard, page)


def test_statuses_are_those_of_the_store():
    assert (pages.ACTIVE, pages.GONE, pages.REMOVED) == (
        page_status.ACTIVE,
        page_status.GONE,
        page_status.REMOVED,
    )
    assert pages.NEVER == page_status.NEVER


def test_a_signal_counts_once_and_never_an_older_one():
    world, page_id, row = crawled_world()
    for time in (NOW + 5, NOW + 5, NOW + 3, NOW + 6):
        world.signal(page_id, time)
    assert row["signals"] == 2
    assert row["last_signal_at"] == NOW + 6


def test_signals_soon_after_a_crawl_are_about_what_it_saw():
    world, page_id, row = crawled_world(delay=60.0)
    world.signal(page_id, NOW + 60)
    assert row["signals"] == 0
    world.signal(page_id, NOW + 61)
    assert row["signals"] == 1


@pytest.mark.parametrize("signal_first", [True, False])
def test_a_signal_after_the_crawl_stays_whatever_comes_first(signal_first):
    world, page_id, row = crawled_world()
    things = [
        lambda: world.signal(page_id, NOW + 20),
        lambda: world.outcome(page_id, NOW + 10),
    ]
    for thing in things if signal_first else reversed(things):
        thing()
    assert row["signals"] == 1
    assert row["last_crawled_at"] == NOW + 10


@pytest.mark.parametrize("signal_first", [True, False])
def test_a_signal_before_the_crawl_is_answered_whatever_comes_first(signal_first):
    world, page_id, row = crawled_world()
    things = [
        lambda: world.signal(page_id, NOW + 5),
        lambda: world.outcome(page_id, NOW + 10),
    ]
    for thing in things if signal_first else reversed(things):
        thing()
    assert row["signals"] == 0


def test_an_outcome_counts_once_and_never_an_older_one():
    world, page_id, row = crawled_world()
    world.outcome(page_id, NOW + 10, FAILED)
    world.outcome(page_id, NOW + 10, FAILED)
    assert row["failures"] == 1
    world.outcome(page_id, NOW + 20)
    world.outcome(page_id, NOW + 15, FAILED)
    world.outcome(page_id, NOW + 15)
    assert (row["failures"], row["last_crawled_at"]) == (0, NOW + 20)
    assert row["retry_at"] == NEVER


def test_a_retry_waits_for_ninety_days_at_most():
    world, page_id, row = crawled_world(retry=300.0)
    for number in range(1, 40):
        world.outcome(page_id, NOW + number, FAILED)
    assert row["retry_at"] == NOW + 39 + 90 * DAY


def test_a_page_that_goes_on_failing_is_tried_as_often_as_its_own_rhythm_is_worth():
    world, page_id, row = crawled_world(retry=300.0)
    crawled, failed = row["last_crawled_at"], NOW + 10 * DAY
    waits = []
    for _ in range(5):
        world.outcome(page_id, failed, FAILED)
        waits.append(row["retry_at"] - failed)
        failed = row["retry_at"]
    assert waits[:2] == [300.0, 600.0]  # most troubles pass
    assert waits[2] == failed - sum(waits[2:]) - crawled
    assert waits[3:] == [2 * waits[2], 4 * waits[2]]


def test_a_gone_page_comes_back_by_a_signal_or_an_upsert():
    world, page_id, row = crawled_world()
    world.outcome(page_id, NOW + 10, GONE_FOR_GOOD)
    assert row["status"] == pages.GONE
    world.signal(page_id, NOW + 5)
    assert row["status"] == pages.GONE
    world.signal(page_id, NOW + 15)
    assert row["status"] == pages.ACTIVE
    # As after a first failure, so that times of tomorrow do not have it crawled all day.
    assert row["retry_at"] == NOW + 10 + world.shard.rules.failed_retry
    world.outcome(page_id, NOW + 20, IS_GONE)
    assert (row["status"], row["misses"]) == (pages.GONE, 4)
    upsert(world.shard, url_of("a", 1), NOW + 30)
    assert row["status"] == pages.ACTIVE
    world.outcome(page_id, NOW + 25, GONE_FOR_GOOD)
    assert row["status"] == pages.ACTIVE


def looks_at(world, page_id, row, results, first=DAY):
    """Answer each look at a page, at the moment when it may be made; when they were."""
    at, looks = NOW + first, []
    for result in results:
        world.outcome(page_id, at, result)
        looks.append(at)
        at = row["retry_at"]
    return np.array(looks)


def test_a_404_is_confirmed_in_the_rhythm_of_the_page_and_then_looked_at_ever_more_rarely():
    world, page_id, row = crawled_world(retry=300.0)
    crawled = row["last_crawled_at"]
    looks = looks_at(world, page_id, row, [IS_GONE] * 2)
    assert row["status"] == pages.ACTIVE
    assert looks[1] - looks[0] == 0.5 * (looks[0] - crawled)
    world.outcome(page_id, row["retry_at"], IS_GONE)
    assert row["status"] == pages.GONE
    waits = []
    for _ in range(9):
        last = row["last_attempt_at"]
        waits.append((row["retry_at"] - last) / DAY)
        world.outcome(page_id, row["retry_at"], IS_GONE)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 90.0, 90.0]
    world.outcome(page_id, row["retry_at"], UNCHANGED)
    assert row["status"] == pages.ACTIVE
    assert (row["failures"], row["misses"]) == (0, 0)


def test_a_look_at_a_gone_page_that_fails_is_made_again_soon_twice():
    world, page_id, row = crawled_world(retry=300.0)
    looks = looks_at(world, page_id, row, [GONE_FOR_GOOD, FAILED, FAILED, FAILED, FAILED, IS_GONE])
    assert np.diff(looks).tolist() == [DAY, 300.0, 600.0, DAY, DAY]
    assert (row["status"], row["failures"], row["misses"]) == (pages.GONE, 4, 4)
    assert row["retry_at"] - looks[-1] == 2 * DAY


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (IS_REDIRECTED, page_status.REDIRECTED),
        (IS_DUPLICATE, page_status.DUPLICATE),
        (IS_DISALLOWED, page_status.DISALLOWED),
    ],
)
def test_who_is_away_at_once_is_looked_at_after_a_day_two_four(kind, status):
    world, page_id, row = crawled_world(retry=300.0)
    crawled = row["last_crawled_at"]
    looks = looks_at(world, page_id, row, [kind] * 9)
    assert (np.diff(looks) / DAY).tolist() == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 90.0]
    assert (row["status"], row["last_crawled_at"]) == (status, crawled)
    due = row["retry_at"]
    assert world.pick([due - 1.0], 1.0) == [None]
    assert world.pick([due + 1.0], 1.0) == [page_id]
    world.outcome(page_id, due + 2.0, UNCHANGED)
    assert (row["status"], row["failures"], row["misses"]) == (pages.ACTIVE, 0, 0)


def test_a_deployment_that_fails_for_ten_minutes_loses_no_page():
    world, page_id, row = crawled_world(retry=300.0)
    looks = looks_at(world, page_id, row, [IS_GONE] * 2, first=60.0)
    assert looks[0] + 600.0 < row["retry_at"]
    world.outcome(page_id, row["retry_at"], UNCHANGED)
    assert row["status"] == pages.ACTIVE


def test_other_failures_confirm_no_404():
    world, page_id, row = crawled_world(retry=300.0)
    looks_at(world, page_id, row, [FAILED, FAILED, IS_GONE, FAILED, IS_GONE, FAILED])
    assert (row["status"], row["failures"], row["misses"]) == (pages.ACTIVE, 6, 2)


def test_a_page_that_is_gone_is_looked_at_again():
    world = World(rules(retry=300.0))
    page = world.add_page("a", 1, NOW, last_crawled_at=NOW - DAY)
    world.outcome(page.page_id, NOW + 1.0, GONE_FOR_GOOD)
    assert world.pick([NOW + DAY], 1.0) == [None]
    assert world.pick([NOW + DAY + 2.0], 1.0) == [page.page_id]


def test_an_answer_clears_the_request_by_its_id_or_by_its_time():
    world, page_id, row = crawled_world(timeout=50.0)

    def answer(requested_us, crawled_at):
        world.shard.outcomes(
            Outcomes(
                np.array([page_id]),
                np.array([crawled_at]),
                np.array([UNCHANGED], np.int8),
                np.array([requested_us]),
                np.zeros(1, np.uint32),
            )
        )

    now = NOW + DAY
    for requested_us, crawled_at, clears in (
        (microseconds(now), now - 1.0, True),
        (NO_REQUEST, now - 0.5, False),
        (microseconds(now) - 7, now - 0.4, False),
        (NO_REQUEST, now + 1.0, True),
    ):
        row["deadline"] = now + 50.0
        row["requested_us"] = microseconds(now)
        answer(requested_us, crawled_at)
        assert bool(row["deadline"] == NEVER) is clears


def test_an_outdated_answer_still_clears_its_request():
    world, page_id, row = crawled_world()
    row["deadline"], row["requested_us"] = NOW + 99.0, microseconds(NOW - 10.0)
    world.outcome(page_id, NOW - 5.0)
    assert row["deadline"] == NEVER
    assert row["last_crawled_at"] == NOW


def test_events_about_unknown_pages_are_counted_and_change_nothing():
    shard = make_shard(0, rules())
    ids, times = np.array([1, 2]), np.array([NOW, NOW])
    outcomes = Outcomes(
        ids, times, np.zeros(2, np.int8), np.full(2, NO_REQUEST), np.zeros(2, np.uint32)
    )
    assert shard.signals(ids, times, ["feed", "feed"]) == 2
    assert shard.outcomes(outcomes) == 2
    assert shard.parameters(ids, times, times, times) == 2
    assert shard.count == 0


def test_updates_change_only_what_they_name_and_never_go_back():
    shard = make_shard(0, rules(max_age_days=50.0))
    page = url_of("a", 1)
    assert upsert(shard, page, NOW, importance=3.0)
    row = row_of(shard, page)
    assert (row["importance"], row["max_age"]) == (3.0, 50.0 * DAY)
    assert upsert(shard, page, NOW + 2, max_age_days=7.0)
    assert not upsert(shard, page, NOW + 1, importance=9.0)
    assert (row["importance"], row["max_age"]) == (3.0, 7.0 * DAY)
    assert upsert(shard, page, NOW + 3, crawled_at=NOW)
    assert row["last_crawled_at"] == NOW


def test_signals_from_before_a_copy_wait_for_nothing():
    world, page_id, row = crawled_world(delay=60.0)
    identity = world.identities[0]
    for time in (NOW + 100, NOW + 200, NOW + 300):
        world.signal(page_id, time)
    assert row["signals"] > 0
    assert upsert(world.shard, identity, NOW + 400, crawled_at=NOW + 250)
    # The last one is about what the copy saw.
    assert row["signals"] == 0
    world.shard.signals(np.array([page_id]), np.array([NOW + 500]), ["feed"])
    assert upsert(world.shard, identity, NOW + 600, crawled_at=NOW + 400)
    assert row["signals"] == 1
    # It says nothing any more of the batch that it was of.
    place = world.shard.signal_times.place_of(world.shard.row_of(page_id))
    batches = world.shard.batches.arrays(world.shard.signal_times.size)
    assert batches.waiting.batches[place] == -1


def test_after_a_copy_there_is_no_digest_to_compare_with():
    world, page_id, _ = crawled_world()
    shard, identity = world.shard, world.identities[0]

    def crawled(time, digest):
        ids, times = np.array([page_id]), np.array([time])
        kinds, digests = np.array([COMPARE], np.int8), np.array([digest], np.uint32)
        shard.outcomes(Outcomes(ids, times, kinds, np.array([NO_REQUEST]), digests))
        return math.isfinite(days_since_change(shard.records[shard.row_of(page_id)], time))

    assert not crawled(NOW + 10, 7)
    assert upsert(shard, identity, NOW + 20, crawled_at=NOW + 15)
    assert not crawled(NOW + 30, 8)
    assert crawled(NOW + 40, 9)


def test_a_removed_page_stays_away_from_older_updates():
    shard = make_shard(0, rules())
    page = url_of("a", 1)
    upsert(shard, page, NOW)
    assert not shard.remove(page.page_id, NOW - 1)
    assert shard.remove(page.page_id, NOW + 5)
    assert not upsert(shard, page, NOW + 4)
    assert shard.count == 0
    assert upsert(shard, page, NOW + 6)
    assert row_of(shard, page)["last_crawled_at"] == NEVER


def test_a_row_is_used_again_without_traces_of_its_last_page():
    world = World(rules(host_rate=100.0))
    for number in range(10):
        world.add_page("a", number, NOW, last_crawled_at=NOW, signals=4, failures=2)
    world.pick(NOW + np.arange(1, 6), 1.0)
    used = world.shard.used
    for identity in list(world.identities):
        world.remove_page(identity.page_id, NOW + 10)
    fresh = [world.add_page("b", number, NOW + 20) for number in range(10)]
    assert world.shard.used == used
    for identity in fresh:
        row = row_of(world.shard, identity)
        assert world.shard.url_of(world.shard.row_of(identity.page_id)) == identity.url
        assert (row["signals"], row["failures"], row["deadline"]) == (0, 0, NEVER)
        assert row["max_age"] == math.inf
    picked = world.pick(NOW + 30 + np.arange(1, 12), 1.0)
    assert sorted(filter(None, picked)) == sorted(identity.page_id for identity in fresh)
    assert world.shard.host_rows[world.shard.hosts.find("a.example")]["pages"] == 0


def test_a_shard_grows_and_shrinks_with_its_pages():
    shard = make_shard(0, rules())
    identities = [url_of(f"h{number % 90}", number) for number in range(3000)]
    for identity in identities:
        upsert(shard, identity, NOW)
    for identity in identities[:2500]:
        shard.remove(identity.page_id, NOW + 1)
    assert shard.count == 500
    assert shard.urls.size < 2 * 500 * len(identities[-1].url)
    for identity in identities[2500:]:
        row = shard.row_of(identity.page_id)
        assert shard.url_of(row) == identity.url
        assert shard.hosts.names[shard.pages[row]["host"]] == identity.host
    assert all(shard.row_of(identity.page_id) < 0 for identity in identities[:2500])
    assert int(shard.host_rows["pages"].sum()) == 500


def test_parameters_take_effect_on_the_next_pick():
    world = World(rules())
    dull = world.add_page("a", 1, NOW - DAY, last_crawled_at=NOW - DAY)
    lively = world.add_page("b", 1, NOW - DAY, last_crawled_at=NOW - DAY, alpha=1e-6)
    assert world.pick([NOW], 1.0) == [dull.page_id]
    world.shard.parameters(
        np.array([lively.page_id]), np.array([3.0]), np.array([0.0]), np.array([0.0])
    )
    world.reference.pages[lively.page_id].alpha = 3.0
    world.outcome(dull.page_id, NOW + 0.5)
    assert world.pick([NOW + 1.0], 1.0) == [lively.page_id]
