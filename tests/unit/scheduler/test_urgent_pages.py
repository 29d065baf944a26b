"""Pages that somebody asks for at once; and the heaps of the upper tiers."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from reference_shard import DAY, World, rules
from test_shard_selection import random_world

from services.scheduler.explain import page_state
from services.scheduler.flow.loading import _load_urgent
from services.scheduler.picking import urgent_tidying
from services.scheduler.picking.priority import BY_VALUE, NEW, OVER_AGE, RETRY, URGENT
from services.verify.simulation.looking import Looks, every_pick_looked_at
from shared.contracts.messages import PageUpdate
from shared.rules.page_events import FAILED, IS_GONE, UNCHANGED
from shared.store.page_status import NEVER

NOW = 1.7e9
RESTING = {"least_interval": 300.0, "retry": 300.0, "host_rate": 10.0}


def ask(world, page, time):
    world.shard.upsert(page, PageUpdate("upsert", page.url, urgent=True), time)


def pick(world, *times):
    """(page id, tier) of each slot; None: it stays empty."""
    picks = world.shard.selector.select(np.array(times), 1.0, 0.0)
    ids = world.shard.lookup.ids
    return [(int(ids[p["row"]]), int(p["tier"])) if p["row"] >= 0 else None for p in picks]


def attempts_of(world):
    return int((world.shard.pages["attempt"][: world.shard.used] > 0).sum())


@pytest.fixture
def world():
    made = World(rules(**RESTING))
    made.page = made.add_page("a", 1, NOW - DAY, last_crawled_at=NOW - 10.0)
    return made


def test_what_is_asked_for_goes_before_all_others_and_does_not_rest(world):
    new = world.add_page("b", 1, NOW, importance=1e12)
    old = world.add_page("c", 1, NOW, last_crawled_at=NOW - 9 * DAY, max_age=8 * DAY)
    ask(world, world.page, NOW)
    weighed = world.shard.selector.weigh(NOW, 0.0, world.shard.used)
    assert weighed.priorities.argmax() == world.shard.row_of(world.page.page_id)
    assert pick(world, NOW + 0.1, NOW + 0.2, NOW + 0.3, NOW + 0.4) == [
        (world.page.page_id, URGENT),
        (new.page_id, NEW),
        (old.page_id, OVER_AGE),
        None,
    ]


def test_a_crawl_since_then_is_the_answer_and_the_message_read_again_asks_for_no_other(world):
    for _ in range(2):
        ask(world, world.page, NOW)
    assert pick(world, NOW + 0.1, NOW + 0.2) == [(world.page.page_id, URGENT), None]
    world.outcome(world.page.page_id, NOW + 1.0)
    ask(world, world.page, NOW)
    assert pick(world, NOW + 2.0) == [None]
    assert attempts_of(world) == 0


@pytest.mark.parametrize(("crawled_at", "is_answer"), [(NOW - 5.0, False), (NOW, True)])
def test_only_a_crawl_of_that_time_or_later_is_the_answer(world, crawled_at, is_answer):
    ask(world, world.page, NOW)
    world.outcome(world.page.page_id, crawled_at)
    assert (pick(world, NOW + 1.0) == [None]) == is_answer


def test_what_was_asked_for_before_is_waited_for(world):
    assert pick(world, NOW + 290.0) == [(world.page.page_id, 0)]
    ask(world, world.page, NOW + 291.0)
    assert pick(world, NOW + 292.0) == [None]
    world.outcome(world.page.page_id, NOW + 290.5)
    assert pick(world, NOW + 293.0) == [(world.page.page_id, URGENT)]


def test_it_waits_for_its_host_and_for_its_time(world):
    world.limit_host("a.example", 10.0, NOW + 50.0, NOW)
    ask(world, world.page, NOW + 60.0)
    assert pick(world, NOW + 40.0, NOW + 55.0) == [None, None]
    assert pick(world, NOW + 61.0) == [(world.page.page_id, URGENT)]


def test_a_request_that_fails_is_made_again_like_any_other(world):
    page_id = world.page.page_id
    ask(world, world.page, NOW)
    assert pick(world, NOW + 0.1) == [(page_id, URGENT)]
    world.outcome(page_id, NOW + 1.0, FAILED)
    assert pick(world, NOW + 2.0, NOW + 300.0) == [None, None]
    assert pick(world, NOW + 301.5) == [(page_id, URGENT)]
    world.outcome(page_id, NOW + 302.0, FAILED)
    ask(world, world.page, NOW + 303.0)
    assert pick(world, NOW + 303.5) == [(page_id, URGENT)]
    world.outcome(page_id, NOW + 304.0, FAILED)
    assert pick(world, NOW + 304.0 + 1200.0) == [(page_id, RETRY)]


def test_who_was_gone_is_looked_at_at_once_and_no_more(world):
    page_id = world.page.page_id
    for at in range(3):
        world.outcome(page_id, NOW + at, IS_GONE)
    ask(world, world.page, NOW + 10.0)
    assert pick(world, NOW + 11.0) == [(page_id, URGENT)]
    world.outcome(page_id, NOW + 12.0, IS_GONE)
    assert pick(world, NOW + 13.0, NOW + 1000.0) == [None, None]


def test_a_shard_that_is_loaded_knows_what_is_still_asked_for(world):
    done = world.add_page("b", 1, NOW, last_crawled_at=NOW)
    urgent_at = {world.page.page_id: NOW - 5.0, done.page_id: NOW - 5.0}
    ids = [int(world.shard.lookup.ids[row]) for row in range(world.shard.used)]
    columns = SimpleNamespace(
        urgent_at=np.array([urgent_at.get(page_id, NEVER) for page_id in ids]),
        last_crawled_at=world.shard.pages["last_crawled_at"][: world.shard.used],
    )
    _load_urgent(world.shard, columns)
    assert attempts_of(world) == 1
    assert pick(world, NOW + 1.0, NOW + 2.0) == [(world.page.page_id, URGENT), None]


def test_operators_see_that_it_is_asked_for(world):
    ask(world, world.page, NOW)
    state = page_state(world.shard, world.page, NOW + 1.0, 1e9)
    assert (state["class"], state["urgent_at"], state["due_at"]) == ("urgent", NOW, NOW + 1.0)
    assert page_state(world.shard, world.page, NOW - 1.0, 1e9)["class"] == "not now"


@pytest.mark.parametrize("seed", range(6))
def test_picks_are_the_most_urgent_amid_wishes(seed):
    rng = np.random.default_rng(seed)
    settings = {"timeout": 5.0, "retry": 4.0, "max_age_days": 25.0}
    settings |= {"host_rate": 1.0, "least_interval": 3.0}
    world = random_world(rng, pages=60, hosts=6, **settings)
    looks, urgent, now = Looks(), 0, NOW
    with every_pick_looked_at(looks):
        for _ in range(80):
            now += 1.0
            for place in rng.integers(0, 60, rng.integers(0, 3)):
                ask(world, world.identities[place], now - float(rng.exponential(2.0)) + 1.0)
            picks = [one for one in pick(world, now + 0.1, now + 0.2, now + 0.3) if one]
            urgent += sum(tier == URGENT for _, tier in picks)
            for page_id, _ in picks:
                if rng.random() < 0.8:
                    result = rng.choice([UNCHANGED, FAILED, IS_GONE], p=[0.6, 0.3, 0.1])
                    world.outcome(page_id, now + 0.4, result)
    finding = looks.finding()
    assert (finding.count, finding.examples) == (0, [])
    assert urgent > 10


def upper_tiers(rng, shares):
    """Pages of all tiers, more than are picked, some of them of a host at its limit."""
    some = rules(max_age_days=10.0, host_rate=20.0)
    picking = dataclasses.replace(some.picking, shares=shares)
    world = World(dataclasses.replace(some, picking=picking))
    for number in range(300):
        aged = NOW - rng.uniform(5.0, 15.0) * DAY if number % 2 else NEVER
        worth = float(rng.lognormal())
        world.add_page(f"h{number % 4}", number, NOW, importance=worth, last_crawled_at=aged)
    world.shard.limit_host("h0.example", 0.2, None, NOW)
    return world


@pytest.mark.parametrize("shares", [(), (0.3, 0.2, 0.2, 0.1)])
def test_places_do_not_pile_up_while_pages_wait_and_are_said_again_and_again(shares, monkeypatch):
    monkeypatch.setattr(urgent_tidying, "_SPARE", 200)
    rng = np.random.default_rng(3)
    world, looks, picked = upper_tiers(rng, shares), Looks(), set()
    with every_pick_looked_at(looks):
        for at in NOW + 1.0 + np.arange(60):
            for place in rng.integers(0, 300, 100):
                identity = world.identities[place]
                said = {"importance": float(rng.lognormal())} if rng.random() < 0.5 else {}
                if rng.random() < 0.01:
                    said["urgent"] = True
                elif rng.random() < 0.01:
                    world.shard.remove(identity.page_id, at)
                world.shard.upsert(identity, PageUpdate("upsert", identity.url, **said), at)
            picks = world.shard.select(at + np.array([0.1, 0.2]), 2.0, 0.0)
            picked |= set(picks["tier"].tolist())
            assert world.shard.selector._state["urgent"] <= 2 * 300 + 200
    finding = looks.finding()
    assert (finding.count, finding.examples) == (0, [])
    assert picked == {URGENT, NEW} | ({OVER_AGE, BY_VALUE} if shares else set())
