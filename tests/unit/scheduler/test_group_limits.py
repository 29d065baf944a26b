"""All hosts of a group together are crawled no more often than its limit lets them be."""

import itertools
import math

import numpy as np
import pytest
from examples import some
from reference_groups import followed_by, owner_of, shares_of
from reference_shard import DAY, World, rules
from test_shard_selection import START, random_world, something_happens

from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.explain import page_state
from services.scheduler.flow.recovery import restore
from services.scheduler.picking.calendar import make_shard
from shared.contracts.messages import CrawlRequest, PageUpdate
from shared.contracts.reported import GroupPages
from shared.pacing.groups import Limits

RATE = 10.0
"""Slots of the budget per second."""

EVERYTHING = {0: 1.0}


def world_of(hosts=("a.shop", "b.shop", "other"), pages=400, number=0, **settings):
    """A world with pages of some hosts below `.example`, all worth about the same: those of `other`
    a little less."""
    settings = {"host_rate": 1000.0, "timeout": 1e9} | settings
    world = World(rules(**settings), number)
    for host in hosts:
        for place in range(pages):
            crawled_at = START - 2 * DAY + 60.0 * (host == "other")
            world.add_page(host, place, START - DAY, last_crawled_at=crawled_at)
    return world


def crawls_of(world, begin, seconds, suffix="shop.example", rate=RATE):
    """Times at which hosts whose names end so are crawled while slots come evenly."""
    hosts = {identity.page_id: identity.host for identity in world.identities}
    times = []
    for first in np.arange(begin, begin + seconds - 1e-9, 5 / rate):
        slots = first + np.arange(5) / rate
        picked = world.pick(slots, rate)
        times += [
            float(at)
            for at, page_id in zip(slots, picked, strict=True)
            if page_id is not None and hosts[page_id].endswith(suffix)
        ]
    return np.array(times)


def most_in(times, window):
    """Crawls in the window of so many seconds that has most."""
    times = np.sort(times)
    return int((np.searchsorted(times, times + window, side="right") - np.arange(times.size)).max())


def test_two_hosts_of_one_domain_keep_one_rate_and_others_do_not_notice():
    world = world_of()
    world.limit_groups(shares_of("shop.example", 2.0, EVERYTHING, START))
    crawls = crawls_of(world, START + 1, 30)
    assert 57 <= crawls.size <= 61
    for window in (0.6, 1.0, 5.0, 20.0):
        assert most_in(crawls, window) <= 2 + 2.0 * window
    assert {world.shard.hosts.names[n] for n in range(3)} == {
        "a.shop.example",
        "b.shop.example",
        "other.example",
    }
    # All other slots are the other host's.
    assert len(crawls_of(world, START + 40, 10, "other.example")) == 80


def test_the_hosts_own_limits_hold_too():
    world = world_of()
    world.limit_host("a.shop.example", 0.0, None, START)
    world.limit_host("b.shop.example", 0.5, None, START)
    world.limit_groups(shares_of("shop.example", 2.0, EVERYTHING, START))
    assert crawls_of(world, START + 1, 20).size <= 12


def test_a_limit_that_is_taken_back_or_raised_holds_no_longer():
    world = world_of(hosts=("a.shop", "b.shop"))
    before = shares_of("shop.example", 1.0, EVERYTHING, START)
    world.limit_groups(before)
    assert crawls_of(world, START + 1, 10).size <= 11
    world.limit_groups(followed_by(before, START + 20, 4.0, EVERYTHING))
    assert 38 <= crawls_of(world, START + 20, 10).size <= 41
    world.limit_groups()
    assert crawls_of(world, START + 40, 5).size == 50


def test_a_group_whose_limit_is_nothing_is_left_alone_until_it_has_another():
    world = world_of(pages=20)
    before = shares_of("shop.example", 0.0, EVERYTHING, START)
    world.limit_groups(before)
    assert crawls_of(world, START + 1, 3).size == 0
    world.limit_groups(followed_by(before, START + 10, 100.0, EVERYTHING))
    assert crawls_of(world, START + 11, 3).size > 20


def test_a_shard_without_a_share_leaves_the_group_alone():
    world = world_of()
    before = shares_of("shop.example", 5.3, {1: 1.0}, START)
    world.limit_groups(before)
    assert crawls_of(world, START + 1, 5).size == 0
    world.limit_groups(followed_by(before, START + 10, 5.3, {0: 0.5, 1: 0.5}))
    assert 20 <= crawls_of(world, START + 10, 10).size <= 31


@pytest.mark.slow(1)
def test_shards_together_keep_the_rate_however_their_shares_change():
    worlds = [world_of(hosts=(f"h{n}.shop", "other"), number=n) for n in range(3)]
    rng = np.random.default_rng(1)
    shares = shares_of("shop.example", 3.0, {0: 0.2, 1: 0.3, 2: 0.5}, START)
    crawls, now = [], START + 1
    for _ in range(12):
        for world in worlds:
            world.limit_groups(shares)
            crawls += crawls_of(world, now, 5).tolist()
        now += 5
        parts = rng.dirichlet([1, 1, 1])
        shares = followed_by(shares, now, 3.0, dict(enumerate(parts.tolist())))
    assert len(crawls) > 160
    for window in (0.5, 2.0, 10.0, 40.0):
        assert most_in(np.array(crawls), window) <= 2 + 3.0 * window


def test_a_slot_waits_for_the_turns_of_a_shard_that_has_few():
    """A hundred slots a second of the group, of which a twentieth is the shard's, and one of the
    budget every two seconds: it is crawled at each of them."""
    world = world_of(hosts=("a.shop",))
    world.limit_groups(shares_of("shop.example", 100.0, {0: 0.05, 1: 0.95}, START))
    assert crawls_of(world, START + 1, 60, rate=0.5).size == 30


def test_a_slot_that_is_over_stays_so_where_slots_begin_to_be_kept_for_longer():
    """Hosts of the group wait for the next one by then, and no other host is to come before."""
    world = world_of(hosts=("a.shop",), pages=50)
    shares = shares_of("shop.example", 1.0, {0: 0.2, 1: 0.8}, START)
    world.limit_groups(shares)
    ours = [number for number in range(1, 60) if owner_of(shares, number) == 0]
    slot = next(one for one, two in itertools.pairwise(ours) if one > 10 and two - one > 4)
    # It has come, and is over after a second, at ten turns a second.
    assert world.pick([START + slot + 1.5], RATE) == [None]
    world.add_page("b.shop", 0, START, last_crawled_at=START - 2 * DAY)
    assert world.pick([START + slot + 1.6], 0.5) == [None]
    assert crawls_of(world, START + slot + 2.0, 10).size > 0


def test_after_a_quiet_time_there_is_no_burst():
    world = world_of(hosts=("a.shop",), pages=50)
    world.limit_groups(shares_of("shop.example", 2.0, EVERYTHING, START))
    world.limit_host("a.shop.example", 0.0, None, START)
    assert crawls_of(world, START + 1, 20).size == 0
    world.limit_host("a.shop.example", 1000.0, None, START + 21)
    crawls = crawls_of(world, START + 21, 5)
    assert most_in(crawls, 0.6) <= 3


@pytest.mark.parametrize("pages_first", [True, False])
def test_what_was_crawled_before_a_restart_has_used_its_slot(pages_first):
    world = world_of(hosts=("a.shop", "b.shop"), pages=20)
    shares = shares_of("shop.example", 0.1, EVERYTHING, START)
    world.limit_groups(shares)
    [crawled] = crawls_of(world, START + 11, 1)
    shard = make_shard(0, world.shard.rules)
    page = world.identities[0]
    asked = CrawlRequest("0-0-1", page.page_id, page.url, page.host, crawled, 1e10, 1, 0, "value")
    if pages_first:
        for page in world.identities:
            shard.upsert(page, PageUpdate("upsert", page.url), START - DAY)
    restore(shard, [asked])
    for page in world.identities:
        shard.upsert(page, PageUpdate("upsert", page.url), START - DAY)
    shard.groups.follow(Limits((shares,)), RATE, START + 20)
    slots = START + np.arange(12, 20, 0.1)
    assert (shard.select(slots, RATE, 0.0)["row"] < 0).all()
    later = shard.select(START + np.arange(20, 25, 0.1), RATE, 0.0)
    assert (later["row"] >= 0).sum() == 1


def test_a_host_that_comes_later_is_of_its_group_at_once():
    world = world_of(hosts=("a.shop",), pages=50)
    world.limit_groups(shares_of("shop.example", 1.0, EVERYTHING, START))
    assert crawls_of(world, START + 1, 5).size <= 6
    for place in range(50):
        world.add_page("new.shop", place, START, last_crawled_at=START - 2 * DAY)
    assert crawls_of(world, START + 6, 10).size <= 11
    assert world.shard.groups.pages() == {"shop.example": 100}


def test_hosts_that_outcomes_name_one_group_of_share_its_limit():
    world = world_of(hosts=("a.one", "b.two", "other"))
    world.limit_groups(shares_of("203.0.113.7", 2.0, EVERYTHING, START))
    world.name_group("a.one.example", "203.0.113.7")
    world.name_group("b.two.example", "203.0.113.7")
    world.name_group("other.example", "203.0.113.8")
    crawls = crawls_of(world, START + 1, 30, ("one.example", "two.example"))
    assert 57 <= crawls.size <= 61
    for window in (0.6, 1.0, 5.0, 20.0):
        assert most_in(crawls, window) <= 2 + 2.0 * window
    assert world.shard.groups.pages() == {"203.0.113.7": 800}
    # The one that goes over to another address is free, and the other one alone again.
    world.name_group("a.one.example", "203.0.113.8")
    assert len(crawls_of(world, START + 40, 10, ("a.one.example", "other.example"))) >= 78
    world.shard.groups.name(0, None)
    assert world.shard.groups.named(0) is None


def test_a_host_of_a_domain_and_of_an_address_keeps_both_limits():
    world = world_of(hosts=("a.shop", "b.shop", "far"))
    for host in ("a.shop.example", "far.example"):
        world.name_group(host, "203.0.113.7")
    shop = shares_of("shop.example", 2.0, EVERYTHING, START)
    address = shares_of("203.0.113.7", 0.5, EVERYTHING, START)
    world.limit_groups(shop, address)
    together, of_address = [], []
    for turn in range(12):
        begin = START + 1 + 5 * turn
        hosts = {identity.page_id: identity.host for identity in world.identities}
        slots = begin + np.arange(50) / RATE
        for at, page_id in zip(slots, world.pick(slots, RATE), strict=True):
            host = hosts.get(page_id, "")
            together += [at] * host.endswith("shop.example")
            of_address += [at] * (host in ("a.shop.example", "far.example"))
    assert 115 <= len(together) <= 121
    assert 28 <= len(of_address) <= 31
    assert most_in(np.array(together), 2.0) <= 6
    assert most_in(np.array(of_address), 8.0) <= 6
    state = page_state(world.shard, world.identities[0], START + 70, 0.0)["host"]
    assert state["groups"] == [
        {"group": "shop.example", "max_crawls_per_second": 2.0, "by": "operators"},
        {"group": "203.0.113.7", "max_crawls_per_second": 0.5, "by": "operators"},
    ]
    assert state["named_group"] == "203.0.113.7"


def test_a_host_that_is_in_a_group_twice_uses_one_slot():
    world = world_of(hosts=("a.shop",))
    world.name_group("a.shop.example", "shop.example")
    world.limit_groups(shares_of("shop.example", 2.0, EVERYTHING, START))
    assert 19 <= crawls_of(world, START + 1, 10).size <= 21
    assert world.shard.groups.pages() == {"shop.example": 400}


def test_every_slot_of_a_group_has_one_owner():
    shares = shares_of("g", 1.0, dict.fromkeys(range(7), 1 / 7), START, 12.5)
    owners = [owner_of(shares, number) for number in range(3000)]
    assert owners[:13] == [None] * 13
    counts = np.bincount(owners[13:])
    assert (np.abs(counts - (3000 - 13) / 7) < 3).all()


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("seed", some(range(12), 4))
def test_picks_are_the_most_urgent_of_hosts_whose_groups_let_them(seed, names):
    rng = np.random.default_rng(seed)
    host_rate = float(rng.choice([0.5, 2.0, 50.0]))
    world = random_world(rng, host_rate=host_rate, timeout=8.0, retry=5.0)
    rate = float(rng.choice([2.0, 20.0, 100.0]))
    now, limits = START, {}
    # One group of a single host, and one of all others.
    groups = (str(rng.choice(sorted(world.reference.hosts))), "example")
    groups += ("203.0.113.7", "203.0.113.8") if names else ()
    for turn in range(60):
        if turn % 5 == 0:
            # The shard's part of the budget is another, and slots are kept for longer, or less.
            # Not so often that clocks cannot tell slots apart.
            rate = float(np.clip(rate * rng.choice([0.2, 1.0, 5.0]), 0.1, 500.0))
        if turn % 12 == 0:
            for group in groups:
                limit, part = rate * float(rng.choice([0.05, 0.3, 2.0])), float(rng.random())
                parts = {0: part, 1: 1.0 - part}
                before = limits.get(group)
                limits[group] = (
                    followed_by(before, now, limit, parts)
                    if before
                    else shares_of(group, limit, parts, now)
                )
            world.limit_groups(*limits.values())
        if turn % 3 == 0 and names:
            host = str(rng.choice(sorted(world.reference.hosts)))
            world.name_group(host, str(rng.choice(["203.0.113.7", "203.0.113.8", "elsewhere"])))
        slots = now + np.sort(rng.random(rng.integers(1, 8))) / rate
        now = float(slots[-1]) + 1e-6
        picked = world.pick(slots, rate)
        something_happens(rng, world, now, picked)
    assert math.isfinite(now)


def test_a_report_says_what_there_is_of_a_group_and_asks_for_no_more_than_its_share():
    world = world_of(hosts=("a.shop", "b.shop", "other"), pages=50)
    shard = world.shard
    reporter = DemandReporter(shard, "me", 20.0)
    reporter.set_demand(demand_of(shard, 0.0))
    free = reporter.report(START, 0.0)
    assert free.groups == []
    limit = 0.1 * free.demand[0]
    world.limit_groups(shares_of("shop.example", limit, {0: 0.5, 1: 0.5}, START))
    world.pick([START + 1], RATE)
    bound = reporter.report(START + 1, 0.0)
    assert bound.groups == [GroupPages("shop.example", 100)]
    assert bound.demand[0] == pytest.approx(free.demand[0] / 3 + 0.5 * limit, rel=1e-6)
    assert bound.host_limited_share == pytest.approx(1 - bound.demand[0] / free.demand[0])
    assert bound.ripe[0] < 0.5 * free.ripe[0]


def test_it_is_said_that_the_group_binds():
    world = world_of(hosts=("a.shop",), pages=5)
    world.limit_groups(shares_of("shop.example", 0.01, EVERYTHING, START))
    world.pick([START + 1], RATE)
    of_host = page_state(world.shard, world.identities[0], START + 1, 0.0)["host"]
    [limit] = of_host["groups"]
    assert limit == {"group": "shop.example", "max_crawls_per_second": 0.01, "by": "operators"}
    assert of_host["usable_from"] == pytest.approx(START + 100)
