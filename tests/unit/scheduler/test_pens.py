"""Hosts at their limits: their pages wait apart, few at a time, and the best is always the next."""

import numpy as np
from reference_shard import DAY, World, rules
from test_shard_selection import START

from services.scheduler.board import PENNED


def busy_world(pages=400, rate=0.5, seed=1, **fields):
    """One host with many ripe pages and a low limit, and fifty hosts without."""
    rng = np.random.default_rng(seed)
    world = World(rules(host_rate=100.0, timeout=1e6))
    for number in range(pages):
        world.add_page(
            "busy",
            number,
            START - 100 * DAY,
            importance=float(rng.lognormal(2, 1)),
            alpha=float(rng.lognormal(-2, 1)),
            last_crawled_at=START - float(rng.exponential(10)) * DAY,
            **fields,
        )
    for number in range(50):
        for page in range(8):
            world.add_page(
                f"h{number}",
                page,
                START - 100 * DAY,
                importance=float(rng.lognormal(0, 1)),
                alpha=float(rng.lognormal(-2, 1)),
                last_crawled_at=START - float(rng.exponential(10)) * DAY,
            )
    world.limit_host("busy.example", rate, None, START)
    return world


def crawl(world, rate, ticks, start):
    """Pick tick by tick, checked by the reference; the hosts picked, and the time after."""
    hosts, now = [], start
    for _ in range(ticks):
        picked = world.pick(now + np.arange(1, 6) / rate, rate)
        hosts += [world.reference.pages[p].host for p in picked if p is not None]
        now += 5 / rate
        for page_id in picked:
            if page_id is not None:
                world.outcome(page_id, now)
    return hosts, now


def penned(world):
    shard = world.shard
    return int((shard.pages["bucket"][: shard.used] == PENNED).sum())


def test_the_best_pages_of_a_limited_host_are_crawled_first_and_few_are_looked_at():
    world = busy_world()
    hosts, now = crawl(world, 10.0, 60, START)
    assert 2 <= hosts.count("busy.example") <= 2 + 0.5 * (now - START)
    # 400 pages: the pen keeps some 16 + 2·20, and never twice as many.
    assert 0 < penned(world) <= 2 * (16 + 2 * 20 + 2 + 2)
    host = world.shard.host_rows[world.shard.hosts.find("busy.example")]
    assert host["held_back"] > 0
    assert host["guard"] > world.shard.selector.guard


def test_a_limit_that_is_lifted_takes_effect_at_once():
    world = busy_world()
    _, now = crawl(world, 10.0, 20, START)
    world.limit_host("busy.example", 1000.0, None, now)
    hosts, _ = crawl(world, 10.0, 60, now)
    assert hosts.count("busy.example") > 200
    assert penned(world) == 0


def test_a_limit_that_goes_up_and_down_never_loses_a_page():
    world = busy_world(pages=150)
    now = START
    for rate in (0.2, 30.0, 0.0, 3.0, 0.1, 1000.0):
        world.limit_host("busy.example", rate, None, now)
        _, now = crawl(world, 10.0, 12, now)


def test_new_pages_of_one_host_are_spread_and_others_go_on():
    world = busy_world(pages=10, rate=2.0)
    for number in range(1500):
        world.add_page("busy", f"new-{number}", START, importance=1.0 + number % 7)
    hosts, now = crawl(world, 20.0, 40, START)
    assert 0 < hosts.count("busy.example") <= 2 + 2.0 * (now - START) + 1
    assert len(hosts) == 200
    assert penned(world) <= 2 * (16 + 2 * 39 + 2 * 4)


def test_pages_of_a_pen_that_are_removed_leave_it():
    world = busy_world(pages=200)
    _, now = crawl(world, 10.0, 10, START)
    busy = [i for i in world.identities if i.host == "busy.example"]
    for identity in busy[:150]:
        world.remove_page(identity.page_id, now)
    for number in range(100):
        world.add_page(f"h{number % 50}", f"again-{number}", now)
    crawl(world, 10.0, 60, now)
