"""Every group that outcomes name has the default limit, unless it has one of its own."""

import math

import numpy as np
import pytest
from examples import some
from reference_groups import default_of, shares_of
from reference_shard import DAY
from test_group_limits import EVERYTHING, RATE, crawls_of, most_in, world_of
from test_shard_selection import START, random_world, something_happens

from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.explain import page_state
from shared.contracts.shares import MOST_DIVIDED, MOST_REPORTED
from shared.pacing.groups import passed

HERE, THERE = "203.0.113.7", "203.0.113.8"


def named_world(number=0, pages=400):
    """Two hosts at one address, another at another one, and one of which nobody knows where."""
    world = world_of(hosts=("a", "b", "c"), pages=pages, number=number)
    for place in range(pages):
        # Worth less than all others.
        world.add_page("free", place, START - DAY, last_crawled_at=START - 1.5 * DAY)
    for host, group in (("a", HERE), ("b", HERE), ("c", THERE)):
        world.name_group(f"{host}.example", group)
    return world


@pytest.mark.slow(0.5)
def test_each_address_has_the_limit_and_what_nobody_found_has_none():
    world = named_world()
    world.limit_others(default_of(2.0, 1, START))
    begin = START + 1
    for hosts, expected in ((("a.example", "b.example"), 30), (("c.example",), 30)):
        crawls = crawls_of(world, begin, 15, hosts)
        assert expected - 3 <= crawls.size <= expected + 1
        for window in (0.6, 1.0, 5.0, 10.0):
            assert most_in(crawls, window) <= 2 + 2.0 * window
        begin += 15
    assert crawls_of(world, begin, 10, "free.example").size >= 58


def test_a_limit_of_its_own_wins():
    world = named_world()
    world.limit_others(default_of(2.0, 1, START))
    own = shares_of(HERE, 4.7, EVERYTHING, START)
    world.limit_groups(own)
    assert 45 <= crawls_of(world, START + 1, 10, ("a.example", "b.example")).size <= 48
    assert world.shard.groups.pages() == {HERE: 800}
    state = page_state(world.shard, world.identities[0], START + 12, 0.0)["host"]
    assert state["groups"] == [{"group": HERE, "max_crawls_per_second": 4.7, "by": "operators"}]
    world.limit_groups()
    assert 18 <= crawls_of(world, START + 20, 10, ("a.example", "b.example")).size <= 21
    state = page_state(world.shard, world.identities[0], START + 30, 0.0)["host"]
    assert state["groups"] == [{"group": HERE, "max_crawls_per_second": 2.0, "by": "default"}]


def test_of_an_address_that_others_share_already_a_shard_that_finds_it_takes_nothing():
    world = named_world()
    elsewhere = "203.0.113.9"
    divided = [(elsewhere, {1: 0.6, 2: 0.4})]
    world.limit_others(default_of(2.0, 3, START, divided))
    crawls_of(world, START + 1, 5, ("a.example",))
    world.name_group("a.example", elsewhere)
    assert crawls_of(world, START + 8, 15, ("a.example",)).size == 0
    divided = [(elsewhere, {0: 0.3, 1: 0.5, 2: 0.2})]
    world.limit_others(default_of(2.0, 3, START + 23, divided))
    assert 6 <= crawls_of(world, START + 24, 15, ("a.example",)).size <= 10


@pytest.mark.slow(2)
def test_shards_together_keep_the_limit_of_an_address_while_it_is_divided():
    worlds = [named_world(number) for number in range(4)]
    rng = np.random.default_rng(1)
    default, now, crawls = default_of(3.0, 4, START), START + 1, {HERE: [], THERE: []}
    hosts = {HERE: ("a.example", "b.example"), THERE: ("c.example",)}
    for turn in range(12):
        for world in worlds:
            world.limit_others(default)
            of_turn = {page.page_id: page.host for page in world.identities}
            slots = now + np.arange(100) / 20.0
            for at, page_id in zip(slots, world.pick(slots, 20.0), strict=True):
                for group, of in hosts.items():
                    crawls[group] += [float(at)] * (of_turn.get(page_id) in of)
        now += 5
        parts = dict(enumerate(rng.dirichlet([1, 1, 1, 1]).tolist()))
        divided = [(HERE, parts), (THERE, {2: 1.0})] if turn % 4 else []
        default = default_of(3.0, 4, now, divided, passed(default, now))
    for times in crawls.values():
        assert len(times) > 120
        for window in (0.5, 2.0, 10.0, 40.0):
            assert most_in(np.array(times), window) <= 5 + 3.0 * window


def test_an_address_in_one_shard_gets_all_of_the_limit_once_it_is_divided():
    world = named_world()
    default = default_of(4.0, 16, START)
    world.limit_others(default)
    assert crawls_of(world, START + 1, 10, "c.example").size <= 5
    now = START + 20
    world.limit_others(default_of(4.0, 16, now, [(THERE, {0: 1.0})], passed(default, now)))
    assert 38 <= crawls_of(world, now, 10, "c.example").size <= 41
    now = START + 40
    world.limit_others(default_of(4.0, 16, now, [(THERE, {3: 1.0})], passed(default, now)))
    assert crawls_of(world, now, 10, "c.example").size == 0


def test_a_group_that_is_only_told_of_has_the_slots_that_it_had():
    world = named_world(pages=20)
    world.limit_others(default_of(0.1, 1, START))
    assert crawls_of(world, START + 1, 1, "c.example").size == 0
    assert crawls_of(world, START + 11, 1, "c.example").size == 1
    world.limit_others(default_of(0.1, 1, START, [(HERE, {}), (THERE, {})]))
    assert crawls_of(world, START + 12, 7, "c.example").size == 0


def test_a_group_that_is_named_for_the_first_time_waits_for_the_next_slot():
    world = named_world(pages=20)
    world.limit_others(default_of(0.1, 1, START))
    crawls_of(world, START + 11, 1)
    world.name_group("free.example", "203.0.113.9")
    assert crawls_of(world, START + 12, 7, "free.example").size == 0
    assert crawls_of(world, START + 19, 2, "free.example").size == 1


def test_hosts_that_come_with_their_addresses_between_two_slots_have_the_limit_at_once():
    world = named_world(pages=40)
    world.limit_others(default_of(1.0, 1, START))
    world.pick([START + 1], RATE)
    for number in range(6):
        for place in range(40):
            world.add_page(f"new{number}", place, START, last_crawled_at=START - 3 * DAY)
        # Whoever crawled them by itself says where they are before a slot of the shard comes.
        world.name_group(f"new{number}.example", f"198.51.100.{number // 2}")
    assert 9 <= crawls_of(world, START + 2, 10, ("new4.example", "new5.example")).size <= 11


def test_names_that_nobody_is_of_any_more_are_forgotten():
    world = named_world(pages=2)
    world.limit_others(default_of(2.0, 1, START))
    shard = world.shard
    crawls_of(world, START + 1, 1)
    before = shard.groups.of(0)
    for number in range(2000):
        shard.groups.name(3, f"made-up-{number}")
        if number % 100 == 0:
            shard.groups.follow(world.limits, RATE, START + 3)
    assert shard.groups.rows.size < 300
    assert shard.groups.lines.size < 600
    assert shard.groups.of(0) == before
    assert [of.group for of in shard.groups.of(3)] == ["made-up-1999"]
    assert [shard.groups.named(host) for host in range(4)] == [HERE, HERE, THERE, "made-up-1999"]


def test_what_was_used_of_a_limit_stays_used_when_names_are_forgotten():
    world = named_world(pages=20)
    world.limit_others(default_of(0.1, 1, START))
    assert crawls_of(world, START + 1, 1, "c.example").size == 0
    assert crawls_of(world, START + 11, 1, "c.example").size == 1
    for number in range(200):
        world.shard.groups.name(3, f"made-up-{number}")
    world.shard.groups.name(3, None)
    assert crawls_of(world, START + 12, 7, "c.example").size == 0


def test_a_report_tells_of_groups_that_wait_and_of_those_that_are_divided():
    world = named_world()
    reporter = DemandReporter(world.shard, "me", 20.0)
    reporter.set_demand(demand_of(world.shard, 0.0))
    assert reporter.report(START, 0.0).named == []
    world.limit_others(default_of(0.5, 4, START))
    crawls_of(world, START + 1, 2)
    told = {of.group: (of.pages, of.waits) for of in reporter.report(START + 3, 0.0).named}
    assert told == {HERE: (800, True), THERE: (400, True)}
    # Nobody waits any more; but one is divided.
    now = START + 10
    world.limit_others(default_of(1e4, 4, now, [(THERE, {0: 1.0}), ("unknown", {0: 1.0})], 5.0))
    crawls_of(world, now + 1, 2)
    told = {of.group: (of.pages, of.waits) for of in reporter.report(now + 3, 0.0).named}
    assert told == {THERE: (400, False)}


def test_a_report_tells_of_few_however_many_wait():
    world = world_of(hosts=tuple(f"h{n}" for n in range(200)), pages=2)
    for number in range(200):
        world.shard.groups.name(number, f"g{number}")
    world.limit_others(default_of(1e-3, 4, START))
    for turn in range(30):
        slots = START + 1 + turn + np.arange(20) / 20.0
        world.shard.groups.follow(world.limits, 20.0, slots[0])
        world.shard.select(slots, 20.0, 0.0)
    assert len(world.shard.groups.named_pages()) == MOST_REPORTED - MOST_DIVIDED


def test_the_demand_is_cut_where_an_address_asks_for_more_than_its_limit():
    world = named_world(pages=50)
    shard = world.shard
    reporter = DemandReporter(shard, "me", 20.0)
    reporter.set_demand(demand_of(shard, 0.0))
    free = reporter.report(START, 0.0).demand[0]
    limit = 0.1 * free
    world.limit_others(default_of(limit, 2, START))
    world.pick([START + 1], RATE)
    bound = reporter.report(START + 1, 0.0).demand[0]
    assert bound == pytest.approx(free / 4 + 2 * 0.5 * limit, rel=1e-6)


@pytest.mark.parametrize("seed", some([1007, 1035, 1038, *range(12)], 6))
def test_picks_are_the_most_urgent_of_hosts_whose_addresses_let_them(seed):
    rng = np.random.default_rng(seed)
    host_rate = float(rng.choice([0.5, 2.0, 50.0]))
    world = random_world(rng, host_rate=host_rate, timeout=8.0, retry=5.0)
    rate, shards = float(rng.choice([2.0, 20.0, 100.0])), int(rng.choice([1, 3]))
    now, names = START, [HERE, THERE, "elsewhere"]
    default = default_of(float(rng.choice([0.3, 3.0])), shards, START)
    for turn in range(60):
        if turn % 10 == 0:
            now = round(now + float(rng.uniform(0, 1)), 3)
            parts = {0: float(rng.uniform(0.1, 0.6)), 1: 0.4}
            divided = [(HERE, parts)] if rng.random() < 0.5 else []
            limit = default.crawls_per_second
            default = default_of(limit, shards, now, divided, passed(default, now))
            world.limit_others(default)
        if turn % 3 == 0:
            host = str(rng.choice(sorted(world.reference.hosts)))
            world.name_group(host, str(rng.choice(names)))
        slots = now + np.sort(rng.random(rng.integers(1, 8))) / rate
        now = float(slots[-1]) + 1e-6
        picked = world.pick(slots, rate)
        something_happens(rng, world, now, picked)
    assert math.isfinite(now)
