"""A page that nobody answers goes on, after a load, where it was in its waiting."""

import numpy as np
import pytest
from reference_shard import DAY, PageView, World, rules

from services.scheduler.flow.recovery import restore
from services.scheduler.state import unanswered
from services.scheduler.state.crawls import Outcomes
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import NO_REQUEST, microseconds, request_id_of
from shared.rules.page_events import FAILED, UNCHANGED
from shared.store.columns import UnansweredPages
from shared.store.page_status import NEVER

START = 1.7e9
TIMEOUT, RETRY = 10.0, 20.0
WAITS = (30.0, 50.0, 90.0)
"""From one request that nobody answers to the next."""


def world_of(pages=1, **more):
    """Pages that were crawled a day before, each of a host of its own."""
    world = World(rules(timeout=TIMEOUT, retry=RETRY))
    for number in range(pages):
        world.add_page(f"h{number}", number, START, **{"last_crawled_at": START - DAY} | more)
    return world


def silent(world, requests):
    """Nobody answers so many requests of the only page; when the next one is due."""
    now = START + 1.0
    for wait in WAITS[:requests]:
        assert world.shard.select(np.array([now]), 1.0, 0.0)["row"][0] >= 0
        now += wait
    return now


def told(world, now):
    """All that is told of a shard up to a time, as the database has it then."""
    known, answered = {}, set()
    while news := world.shard.unanswered.news(now):
        rows = zip(*(column.tolist() for column in news.pages.columns), strict=True)
        answered |= set(news.answered.tolist())
        known = {page: row for page, row in known.items() if page not in answered}
        known |= {row[0]: row for row in rows}
        world.shard.unanswered.told()
    return known, answered


def stored(known):
    none = UnansweredPages.none()
    columns = zip(*known.values(), strict=True) if known else none.columns
    return UnansweredPages(*map(np.array, columns, (column.dtype for column in none.columns)))


def loaded(known, **more):
    """The same pages, loaded by another scheduler."""
    world = world_of(**more)
    world.shard.unanswered.load(stored(known))
    return world


def attempt_of(world):
    page = PageView(world.shard, world.identities[0].page_id)
    return {name: float(page[name]) for name in ("unanswered", "deadline", "retry_at")}


def request_of(world, at):
    page = world.identities[0]
    return CrawlRequest(
        *(request_id_of(0, page.page_id, microseconds(at)), page.page_id, page.url, page.host),
        *(at, at + TIMEOUT, 1.0, 1.0, "value"),
    )


def crawled(page_id, at, result):
    return Outcomes(
        np.array([page_id]),
        np.array([at]),
        np.array([result], np.int8),
        np.array([NO_REQUEST]),
        np.zeros(1, np.uint32),
    )


def picked(world, *slots):
    rows = world.shard.select(np.array(slots), 1.0, 0.0)["row"]
    return (rows >= 0).tolist()


@pytest.mark.parametrize("requests", [1, 2, 3])
@pytest.mark.parametrize("last_crawled_at", [NEVER, START - DAY], ids=["new", "known"])
def test_it_is_asked_for_when_it_would_have_been(requests, last_crawled_at):
    world = world_of(last_crawled_at=last_crawled_at)
    due = silent(world, requests)
    again = loaded(told(world, due)[0], last_crawled_at=last_crawled_at)
    assert attempt_of(again) == attempt_of(world)
    due = attempt_of(world)["retry_at"]
    assert picked(again, due - 0.1) == [False]
    assert picked(again, due + 0.1) == [True]


def test_from_the_third_request_on_it_has_no_claim_to_an_upper_tier():
    world = world_of(last_crawled_at=NEVER, importance=1e-3)
    due = silent(world, 3)
    again = loaded(told(world, due)[0], last_crawled_at=NEVER, importance=1e-3)
    valuable = again.add_page("valuable", 1, START, last_crawled_at=START - 20 * DAY)
    row = again.shard.select(np.array([due]), 1.0, 0.0)["row"][0]
    assert row == again.shard.row_of(valuable.page_id)


def test_what_is_in_flight_comes_on_top_of_it():
    world = world_of()
    due = silent(world, 2)
    known, _ = told(world, due)
    assert picked(world, due) == [True]
    again = loaded(known)
    assert restore(again.shard, [request_of(again, due)]) == 1
    assert attempt_of(again) == attempt_of(world)
    assert again.shard.in_flight(due) == 1


def test_requests_that_are_read_again_do_not_count_again():
    world = world_of()
    asked = [START + 1.0, START + 31.0]
    due = silent(world, 2)
    again = loaded(told(world, due)[0])
    assert restore(again.shard, [request_of(again, at) for at in asked]) == 0
    assert attempt_of(again) == attempt_of(world)


def test_what_was_not_told_yet_is_found_among_the_requests():
    world = world_of()
    asked = [START + 1.0, START + 31.0]
    assert picked(world, asked[0]) == [True]
    known, _ = told(world, START + 11.0)
    assert picked(world, asked[1]) == [True]
    again = loaded(known)
    assert restore(again.shard, [request_of(again, at) for at in asked]) == 1
    assert attempt_of(again) == attempt_of(world)
    assert attempt_of(again)["unanswered"] == 1


@pytest.mark.parametrize("result", [UNCHANGED, FAILED])
def test_an_answer_that_is_heard_of_after_the_load_ends_its_waiting(result):
    world = world_of()
    due = silent(world, 3)
    again = loaded(told(world, due)[0])
    for one in (world, again):
        one.shard.outcomes(crawled(one.identities[0].page_id, START + 32.0, result))
    assert attempt_of(again) == attempt_of(world)
    assert attempt_of(again)["unanswered"] == 0
    # It is said to be over, though this scheduler never said that it was not.
    again.shard.outcomes(crawled(again.identities[0].page_id, due + 1.0, UNCHANGED))
    assert told(again, due)[1] == {again.identities[0].page_id}


@pytest.mark.parametrize(
    ("crawled_at", "counted"), [(START - DAY, 3), (START + 32.0, 1), (START + 82.0, 0)]
)
def test_a_crawl_that_the_database_knows_by_then_has_answered_what_was_before_it(
    crawled_at, counted
):
    world = world_of()
    due = silent(world, 3)
    again = loaded(told(world, due)[0], last_crawled_at=crawled_at)
    attempt = attempt_of(again)
    assert max(attempt["unanswered"], 0) + (attempt["deadline"] > NEVER) == counted
    forgotten = set() if counted else {again.identities[0].page_id}
    assert told(again, due)[1] == forgotten


@pytest.mark.parametrize("result", [UNCHANGED, FAILED])
def test_what_an_estimator_that_is_behind_tells_of_before_does_not_end_it(result):
    world = world_of()
    before = [crawled(world.identities[0].page_id, START - at, result) for at in (3600.0, 1800.0)]
    for outcomes in before:
        world.shard.outcomes(outcomes)
    # After the failures, too, it is asked for; and nobody answers.
    due = START + 1.0
    for _ in range(3):
        assert picked(world, due) == [True]
        due = attempt_of(world)["retry_at"] + 0.1
    known, _ = told(world, due)
    again = loaded(known)
    for outcomes in before:
        again.shard.outcomes(outcomes)
        assert attempt_of(again)["unanswered"] == 2
    assert attempt_of(again) == attempt_of(world)
    assert told(again, due)[1] == set()


@pytest.mark.parametrize("requests", [1, 3])
def test_a_page_that_estimators_do_not_know_yet_waits_on_when_it_is_heard_of(requests):
    world = world_of(last_crawled_at=NEVER)
    due = silent(world, requests)
    known, _ = told(world, due)
    again = World(rules(timeout=TIMEOUT, retry=RETRY))
    again.shard.is_caught_up = False
    again.shard.unanswered.load(stored(known))
    asked = [START + 1.0 + sum(WAITS[:n]) for n in range(requests)]
    restore(again.shard, [request_of(world, at) for at in asked])
    assert told(again, due) == ({}, set())
    again.add_page("h0", 0, START, last_crawled_at=NEVER)
    assert attempt_of(again) == attempt_of(world)
    again.shard.is_caught_up = True
    assert told(again, due)[1] == set()


def test_of_pages_that_are_not_there_any_more_nothing_is_kept():
    world = world_of()
    known, _ = told(world, silent(world, 2))
    again = World(rules(timeout=TIMEOUT, retry=RETRY))
    again.shard.is_caught_up = False
    again.shard.unanswered.load(stored(known))
    assert told(again, START)[1] == set()
    again.shard.is_caught_up = True
    assert told(again, START)[1] == set(known)


def test_nothing_is_told_of_requests_that_are_answered_or_may_still_be():
    world = world_of(3)
    slots = START + 1.0 + np.arange(3)
    rows = world.shard.select(slots, 1.0, 0.0)["row"]
    assert told(world, START + 10.9) == ({}, set())
    first, second, third = world.shard.page_ids_of(rows).tolist()
    world.shard.outcomes(crawled(first, START + 3.0, UNCHANGED))
    known, answered = told(world, START + 12.5)
    assert known.keys() == {second}
    assert not answered
    known, answered = told(world, START + 13.5)
    assert known.keys() == {third}


def test_what_was_told_and_is_answered_or_removed_is_over():
    world = world_of(2)
    rows = world.shard.select(START + 1.0 + np.arange(2), 1.0, 0.0)["row"]
    first, second = world.shard.page_ids_of(rows).tolist()
    assert told(world, START + 30.0)[0].keys() == {first, second}
    world.shard.outcomes(crawled(first, START + 31.0, FAILED))
    world.shard.remove(second, START + 31.0)
    assert told(world, START + 40.0) == ({}, {first, second})
    assert told(world, START + 50.0) == ({}, set())


def test_what_was_taken_back_was_never_asked_for():
    world = world_of()
    rows = world.shard.select(np.array([START + 1.0]), 1.0, 0.0)["row"]
    world.shard.take_back(rows)
    assert told(world, START + 50.0) == ({}, set())


def test_news_are_the_same_until_they_are_told():
    world = world_of()
    due = silent(world, 1)
    news = world.shard.unanswered.news(due)
    assert picked(world, due) == [True]
    assert world.shard.unanswered.news(due + 20.0) is news
    world.shard.unanswered.told()
    assert world.shard.unanswered.news(due + 20.0).pages.requests.tolist() == [2]


def test_many_are_told_in_parts(monkeypatch):
    monkeypatch.setattr(unanswered, "MOST_AT_ONCE", 7)
    world = world_of(50)
    world.shard.select(START + 1.0 + np.arange(50) / 100, 100.0, 0.0)
    news = world.shard.unanswered.news(START + 60.0)
    assert news.pages.page_ids.size == 7
    known, _ = told(world, START + 60.0)
    assert known.keys() == {page.page_id for page in world.identities}


@pytest.mark.long
def test_while_nobody_can_be_told_only_what_waits_is_kept():
    world = world_of()
    page_id, now = world.identities[0].page_id, START
    for _ in range(5_000):
        now += 100.0
        assert picked(world, now) == [True]
        world.shard.outcomes(crawled(page_id, now + 1.0, UNCHANGED))
    assert world.shard.unanswered._asked.size < 500
    assert picked(world, now + 100.0) == [True]
    assert told(world, now + 200.0)[0].keys() == {page_id}
