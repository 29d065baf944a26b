"""Request ids say which slot they fill, and a loaded shard knows what is on its way."""

import numpy as np
import pytest
from reference_shard import DAY, NEVER, PageView, World, rules, url_of

from services.scheduler.flow.recovery import restore
from services.scheduler.flow.requests import crawls_of, write_requests
from services.scheduler.picking.priority import NEW, RETRY, URGENT
from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.crawls import Outcomes
from shared.contracts.codec import decode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, CrawlRequest, PageUpdate
from shared.contracts.request_ids import NO_REQUEST, microseconds, request_id_of, requested_us_of
from shared.rules.page_events import FAILED, UNCHANGED

NOW = 1.7e9


def test_an_id_tells_when_it_was_asked():
    requested_us = microseconds(NOW + 0.123456)
    request_id = request_id_of(4095, 2**63 - 1, requested_us)
    assert requested_us_of(request_id) == requested_us
    assert len(request_id) <= 64


@pytest.mark.parametrize("other", [None, "mine", "a-b", "1-2-zz", "1-2-3-4", "1-2-" + "f" * 40])
def test_other_ids_are_no_requests(other):
    assert requested_us_of(other) == NO_REQUEST


def sent(world, slots):
    """Fill slots, and read the requests that come of it."""
    picks = world.shard.selector.select(np.asarray(slots), 1.0, 0.0)
    messages = write_requests(world.shard, crawls_of(world.shard, picks, 0.25).asked)
    return [decode(CrawlRequest, value) for _, value in messages]


def world_of_pages(**settings):
    world = World(rules(timeout=100.0, host_rate=1.0, **settings))
    for number in range(6):
        world.add_page(f"h{number // 2}", number, NOW - DAY, last_crawled_at=NOW - 5 * DAY)
    return world


def test_a_request_says_all_that_a_crawler_needs():
    world = world_of_pages()
    request = sent(world, [NOW + 1.5])[0]
    row = world.shard.row_of(request.page_id)
    assert request.url == world.shard.url_of(row)
    assert request.host == world.shard.hosts.names[world.shard.pages[row]["host"]]
    assert (request.requested_at, request.deadline_at) == (NOW + 1.5, NOW + 101.5)
    assert request.crawl_value > 0
    assert (request.threshold, request.reason) == (0.25, "value")
    assert requested_us_of(request.request_id) == microseconds(NOW + 1.5)


def test_a_restart_asks_for_nothing_that_is_in_flight():
    requests = sent(world_of_pages(), NOW + 1.0 + 0.1 * np.arange(6))
    assert len(requests) == 6
    restarted = world_of_pages()
    assert restore(restarted.shard, requests) == 6
    assert sent(restarted, [NOW + 50.0, NOW + 60.0]) == []
    again = restarted.shard.selector.select(np.array([NOW + 401.6]), 1.0, 0.0)
    assert again["tier"][0] == RETRY


@pytest.mark.parametrize("stamp", [lambda at: at - 5.0, np.floor], ids=["behind", "whole seconds"])
def test_a_crawler_whose_clock_is_behind_has_answered_all_the_same(stamp):
    """Its crawls seem to be of before they were asked for."""
    requests = sent(world_of_pages(), NOW + 1.5 + 0.1 * np.arange(6))
    restarted = world_of_pages()
    for request in requests[:3]:
        said = float(stamp(request.requested_at))
        answer = CrawlOutcome(request.url, said, request_id=request.request_id, digest="a")
        row = restarted.shard.row_of(request.page_id)
        restarted.shard.pages[row]["last_crawled_at"] = answer.crawled_at
    assert restore(restarted.shard, requests) == 3
    assert restarted.shard.in_flight(NOW + 2.0) == 3


def test_a_restart_gives_no_host_a_second_burst():
    requests = sent(world_of_pages(), [NOW + 1.0, NOW + 1.1])
    restarted = world_of_pages()
    restore(restarted.shard, requests)
    shard = restarted.shard
    for request in requests:
        tokens = shard.host_rows[shard.hosts.find(request.host)]["tokens"]
        assert tokens < 2.0


def test_a_host_at_its_limit_stays_within_it_over_a_restart():
    def world_of_one_host():
        world = World(rules(timeout=100.0, host_rate=1.0))
        for number in range(80):
            world.add_page("a", number, NOW - DAY, last_crawled_at=NOW - 5 * DAY)
        return world

    before = sent(world_of_one_host(), NOW + 0.25 * np.arange(80))
    restarted = world_of_one_host()
    for request in before[:-8]:
        restarted.outcome(request.page_id, request.requested_at + 0.01)
    restore(restarted.shard, before[-8:])
    after = sent(restarted, before[-1].requested_at + 0.1 * np.arange(1, 60))

    times = np.array([request.requested_at for request in before + after])
    assert len(after) >= 5
    for first in range(times.size):
        crawls = np.arange(1, times.size - first + 1)
        assert (crawls <= 2.0 + (times[first:] - times[first]) + 1e-6).all()


def test_answered_requests_are_not_in_flight():
    world = world_of_pages()
    request = sent(world, [NOW + 1.0])[0]
    restarted = world_of_pages()
    restarted.outcome(request.page_id, NOW + 2.0)
    assert restore(restarted.shard, [request]) == 0
    row = PageView(restarted.shard, request.page_id)
    assert row["deadline"] == NEVER


def test_requests_for_pages_that_are_not_there_are_left_out():
    world = World(rules())
    request = CrawlRequest("0-1-2", 1, "https://a.example/", "a.example", NOW, NOW + 9, 0, 0, "new")
    assert restore(world.shard, [request]) == 0


def world_with_a_new_page():
    world = World(rules(timeout=100.0, host_rate=1.0))
    return world, world.add_page("new", 1, NOW)


def test_a_page_that_came_after_the_snapshot_is_in_flight_as_soon_as_it_is_known():
    world, page = world_with_a_new_page()
    requests = sent(world, [NOW + 1.0])
    # The shard is loaded from before the page was added, and hears of it again.
    restarted = World(rules(timeout=100.0, host_rate=1.0))
    restore(restarted.shard, requests)
    restarted.add_page("new", 1, NOW)
    assert sent(restarted, [NOW + 2.0]) == []
    restarted.outcome(page.page_id, NOW + 3.0)
    assert PageView(restarted.shard, page.page_id)["deadline"] == NEVER


def test_a_page_that_came_after_the_snapshot_is_asked_for_again_if_nobody_answers():
    requests = sent(world_with_a_new_page()[0], [NOW + 1.0])
    restarted = World(rules(timeout=100.0, host_rate=1.0))
    restore(restarted.shard, requests)
    restarted.add_page("new", 1, NOW)
    again = restarted.shard.selector.select(np.array([NOW + 401.5]), 1.0, 0.0)
    assert again["tier"][0] == NEW


def test_a_host_that_came_after_the_snapshot_gets_no_second_burst():
    world = World(rules(timeout=100.0, host_rate=1.0))
    for number in range(6):
        world.add_page("new", number, NOW)
    requests = sent(world, [NOW + 1.0, NOW + 1.1])
    restarted = World(rules(timeout=100.0, host_rate=1.0))
    restore(restarted.shard, requests)
    for number in range(6):
        restarted.add_page("new", number, NOW)
    assert sent(restarted, [NOW + 1.2, NOW + 1.3]) == []


def crawled(world, request, result, at):
    """A crawl becomes known; how many of them are of unknown pages."""
    requested_us = np.array([requested_us_of(request.request_id)])
    kinds, digests = np.array([result], np.int8), np.zeros(1, np.uint32)
    ids = np.array([request.page_id])
    return world.shard.outcomes(Outcomes(ids, np.array([at]), kinds, requested_us, digests))


def test_a_page_that_goes_and_comes_back_is_in_flight_still():
    world = world_of_pages()
    (request,) = sent(world, [NOW + 1.0])
    page = identify(request.url)
    world.shard.remove(page.page_id, NOW + 2.0)
    world.shard.upsert(page, PageUpdate("upsert", page.url), NOW + 3.0)
    others = sent(world, NOW + 4.0 + np.arange(6))
    assert len(others) == 5
    assert page.url not in {other.url for other in others}


def test_a_page_that_was_answered_while_it_was_away_is_new_when_it_comes_back():
    world = world_of_pages()
    (request,) = sent(world, [NOW + 1.0])
    page = identify(request.url)
    world.shard.remove(page.page_id, NOW + 2.0)
    assert crawled(world, request, UNCHANGED, NOW + 2.5) == 1
    world.shard.upsert(page, PageUpdate("upsert", page.url), NOW + 3.0)
    assert sent(world, [NOW + 4.0])[0].url == page.url


def test_requests_of_pages_that_never_come_are_forgotten_in_time():
    world = world_of_pages()
    for request in sent(world, NOW + 1.0 + np.arange(6)):
        world.shard.remove(request.page_id, NOW + 10.0)
    world.shard.select(np.array([NOW + 107.0]), 1.0, 0.0)
    page = url_of("h0", 0)
    world.shard.upsert(page, PageUpdate("upsert", page.url), NOW + 108.0)
    assert world.shard.pages[world.shard.row_of(page.page_id)]["attempt"] == NO_ATTEMPT


def test_who_wants_a_page_at_once_still_does_when_its_request_is_taken_back():
    """It has failed so often that it would have to wait for a month."""
    world = world_of_pages()
    (request,) = sent(world, [NOW + 1.0])
    for failure in range(4):
        crawled(world, request, FAILED, NOW + 2.0 + failure)
    page = identify(request.url)
    world.shard.upsert(page, PageUpdate("upsert", page.url, urgent=True), NOW + 10.0)
    picks = world.shard.select(np.array([NOW + 11.0]), 1.0, 0.0)
    assert picks["tier"][0] == URGENT
    world.shard.take_back(picks["row"])
    assert sent(world, [NOW + 12.0])[0].url == page.url
