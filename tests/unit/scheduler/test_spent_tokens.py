"""A host stays within its limit where its shard is loaded, whatever of it was stored by then."""

import asyncio
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from msgspec.structs import replace
from reference_shard import DAY, World, rules

from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.reader import Reader
from services.scheduler.flow.recovery import restore, settle_tokens
from services.scheduler.flow.shard_thread import ShardThread
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlOutcome, CrawlRequest
from shared.contracts.topics import HOST_LIMITS
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

NOW = 1.7e9
HOST = "a.example"
PAGES = 200
RATE = 0.5


def world_of_one_host(host_rate=1.0):
    """A shard, as it is loaded: nobody has crawled these pages since long."""
    world = World(rules(timeout=100.0, host_rate=host_rate))
    pages = [
        world.add_page("a", number, NOW - DAY, last_crawled_at=NOW - 5 * DAY)
        for number in range(PAGES)
    ]
    return world, pages


def record(message):
    at = int(NOW * 1000)
    return SimpleNamespace(value=encode(message), key=b"a", timestamp=at, offset=0, topic="t")


def asked_for(pages, times):
    return [
        CrawlRequest(
            "0-0-0", page.page_id, page.url, HOST, float(time), time + 100.0, 1.0, 0.0, "value"
        )
        for page, time in zip(pages, times, strict=False)
    ]


def picked(world, since, seconds):
    slots = since + 0.25 * np.arange(1, 4 * seconds)
    picks = world.shard.select(slots, 4.0, 0.0)
    return picks["time"][picks["row"] >= 0]


def most_too_many(times, rate):
    """Crawls above 2 + w·rate in the window with the most of them."""
    times = np.sort(times)
    count = np.arange(times.size)
    crawls = count[None, :] - count[:, None] + 1
    return np.triu(crawls - 2.0 - rate * (times[None, :] - times[:, None])).max()


def limited(world, rate):
    world.shard.limit_host(HOST, rate, None, NOW)


@pytest.mark.parametrize("rate", [RATE, 0.03, 0.9])
def test_a_limit_that_is_read_after_the_requests_holds_for_what_came_before(rate):
    world, pages = world_of_one_host()
    before = NOW + np.array([0.0, 0.0, *(np.arange(1, 30) / rate)])
    before = before[before < NOW + 60.0]
    restore(world.shard, asked_for(pages, before))
    limited(world, rate)
    settle_tokens(world.shard)
    after = picked(world, max(before[-1], NOW + 5.0), 100)
    assert after.size >= rate * 100 - 3
    assert most_too_many(np.append(before, after), rate) <= 1e-6


def test_a_limit_that_is_gone_again_takes_nothing_away():
    world, pages = world_of_one_host()
    limited(world, RATE)
    restore(world.shard, asked_for(pages, NOW + np.arange(0.0, 20.0, 2.0)))
    limited(world, 4.0)
    settle_tokens(world.shard)
    assert picked(world, NOW + 20.0, 4).size >= 14


def test_requests_that_are_too_old_to_be_read_again_are_thought_of():
    """All crawls of a host at its limit but the last ones are neither stored nor on their way."""
    world, pages = world_of_one_host(RATE)
    before = NOW + np.array([0.0, 0.0, *np.arange(2.0, 40.0, 2.0)])
    restore(world.shard, asked_for(pages[-6:], before[-6:]))
    after = picked(world, before[-1], 40)
    assert after.size >= 18
    assert most_too_many(np.append(before, after), RATE) <= 1e-6


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_a_host_that_was_below_its_limit_has_all_that_has_come_since(answered):
    """Whether its requests are answered or on their way; others' say since when all are known."""
    world, pages = world_of_one_host()
    other = world.add_page("b", 1, NOW - DAY)
    known = [*asked_for([other], [NOW]), *asked_for(pages, NOW + np.array([50.0, 60.0]))]
    known[0] = replace(known[0], host="b.example")
    for page, time in list(zip(pages, (50.1, 60.1), strict=False))[:answered]:
        world.outcome(page.page_id, NOW + time)
    restore(world.shard, known)
    settle_tokens(world.shard)
    after = picked(world, NOW + 60.5, 4)
    assert after[0] < NOW + 61.0
    assert most_too_many(np.append(NOW + np.array([50.0, 60.0]), after), 1.0) <= 1e-6


def test_answers_that_are_read_late_are_thought_of():
    """A host of one crawl in two minutes was crawled before all requests that are read again."""
    rate = 1.0 / 120.0
    world, pages = world_of_one_host(rate)
    restore(world.shard, [])
    crawled = np.array([NOW, NOW + 1.0])
    reader = Reader(Acceptance(NOW + 5, NOW + 300, record_times_count=True))
    answers = [
        CrawlOutcome(page.url, float(at), result="unchanged")
        for page, at in zip(pages, crawled, strict=False)
    ]
    reader.outcomes(world.shard, [record(answer) for answer in answers])
    settle_tokens(world.shard)
    after = picked(world, NOW + 2.0, 600)
    assert after.size >= 4
    assert most_too_many(np.append(crawled, after), rate) <= 1e-6


def test_a_shard_reckons_once_it_has_read_all():
    world, pages = world_of_one_host()
    times = NOW + np.arange(0.0, 20.0, 2.0)
    restore(world.shard, asked_for(pages, times))
    thread = ShardThread()
    handler = SchedulerHandler(Settings(), ManualClock(), mock.Mock(), thread)
    handler.shards[0] = world.shard
    key = HOST_LIMITS.name, 0
    asyncio.run(handler.unread({key: 2}))
    limited(world, RATE)
    tokens = world.shard.host_rows["tokens"]
    before = tokens[0]
    asyncio.run(handler.reached({key: 1}))
    assert tokens[0] == before > 0.0
    asyncio.run(handler.reached({key: 2}))
    assert world.shard.is_caught_up
    assert tokens[0] == 0.0
    thread.close()
