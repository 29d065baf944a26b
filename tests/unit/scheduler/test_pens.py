"""Hosts at their limits: their pages wait apart, few at a time, and the best is always the next."""

import numpy as np
import pytest
from examples import some
from reference_shard import DAY, PageView, World, rules
from test_shard_selection import START, random_world

from services.scheduler.picking.board import PENNED


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


@pytest.mark.slow(0.5)
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


def test_pages_in_the_rows_of_a_dead_hosts_pages_are_crawled():
    world = World(rules(host_rate=100.0))
    dead = [world.add_page("dead", number, START) for number in range(20)]
    world.limit_host("dead.example", 0.0, None, START)
    world.pick(START + np.arange(1, 31) / 100, 100.0)
    assert penned(world) == 20
    for identity in dead:
        world.remove_page(identity.page_id, START + 1)
    new = [world.add_page(f"h{number % 4}", number, START + 1) for number in range(20)]
    picked = world.pick(START + 1 + np.arange(1, 31) / 100, 100.0)
    assert set(picked) - {None} == {identity.page_id for identity in new}
    assert penned(world) == 0


def test_a_row_that_comes_back_to_its_host_is_in_the_pen_once():
    world = World(rules(host_rate=0.5, timeout=1e6))
    for number in range(8):
        world.add_page("busy", number, START, importance=1.0 + number)
    _, now = crawl(world, 10.0, 1, START)
    for round_ in range(3):
        for identity in [i for i in world.identities if i.host == "busy.example"]:
            world.remove_page(identity.page_id, now)
        for host in ("other", "busy"):
            for number in range(8):
                name = f"{round_}-{number}"
                world.add_page(host, name, now, importance=1.0 + number)
            _, now = crawl(world, 10.0, 3, now)
            assert penned(world) == sum(int(host["penned"]) for host in world.shard.host_rows)
        crawl_until = now + 20
        while now < crawl_until:
            _, now = crawl(world, 10.0, 1, now)


EQUAL = {
    "new": {},
    "of one value": {"last_crawled_at": START - 10 * DAY, "alpha": 0.01},
}


@pytest.mark.parametrize("fields", EQUAL.values(), ids=EQUAL)
def test_pages_that_are_equally_urgent_are_penned_by_quota_and_all_crawled(fields):
    world = World(rules(host_rate=100.0, timeout=1e6))
    for number in range(3000):
        world.add_page("same", number, START - 20 * DAY, **fields)
    shard, selector = world.shard, world.shard.selector
    host = shard.host_rows[shard.hosts.find("same.example")]
    now, crawled, most = START, set(), 0
    while len(crawled) < 3000:
        picks = selector.select(now + np.arange(1, 41) / 20, 20.0, 0.0)
        now += 2.0
        rows = set(picks["row"].tolist()) - {-1}
        assert rows, "none is forgotten"
        assert not rows & crawled, "none is crawled twice"
        crawled |= rows
        most = max(most, int(host["penned"]))
        if now < START + 4:
            world.limit_host("same.example", 10.0, None, now)
    assert 0 < most <= 2 * (16 + 2 * np.sqrt(3000) + 2 * 20)


def test_the_best_page_is_not_left_out_of_a_pen_for_many_that_are_equal():
    world = World(rules(host_rate=0.5, timeout=1e6))
    for number in range(600):
        world.add_page("busy", number, START, importance=5.0 if number > 5 else 10.0 - number)
    for number in range(50):
        world.add_page("other", number, START, importance=1.0)
    crawl(world, 10.0, 60, START)


def test_a_page_that_takes_its_hosts_token_leaves_none_to_a_page_of_the_pen():
    world = World(rules(host_rate=100.0, timeout=1e6, max_age_days=20.0))

    def add(host, number, importance, *, days):
        crawled = START - days * DAY
        world.add_page(host, number, crawled, importance=importance, last_crawled_at=crawled)

    # Too old, in the order in which they are crawled.
    for host, importance in (("busy", 9), ("busy", 8), ("busy", 7), ("other", 6), ("busy", 5)):
        add(host, importance, float(importance), days=30)
    for number in range(3):
        add("busy", 10 + number, 100.0, days=10)
        add("other", 10 + number, 1.0, days=10)
    world.limit_host("busy.example", 0.5, None, START)
    # The third page of the host finds no token: it is penned, and crawled with the next one.
    world.pick(START + np.array([0.01, 0.02, 0.03]), 100.0)
    world.pick(START + np.array([2.05]), 100.0)
    # The fourth was never in the pen. It takes the token for which the pen's pages wait.
    hosts = world.pick(START + np.array([4.10, 4.11, 4.12]), 100.0)
    hosts = [world.reference.pages[page_id].host for page_id in hosts]
    assert hosts == ["busy.example", "other.example", "other.example"]


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_hosts_keep_their_limits_while_new_pages_take_most_slots(seed):
    rng = np.random.default_rng(seed)
    world = random_world(rng, pages=400, hosts=4, host_rate=2.0, timeout=1e6, max_age_days=20.0)
    now = START
    for tick in range(80):
        slots = now + np.sort(rng.random(rng.integers(1, 9)))
        now = float(slots[-1]) + 1e-6
        for page_id in world.pick(slots, 8.0):
            if page_id is not None and rng.random() < 0.9:
                world.outcome(page_id, now)
        for number in range(int(rng.integers(0, 6)) if tick % 10 < 5 else 0):
            host = f"h{rng.integers(4)}"
            world.add_page(host, f"{tick}-{number}", now, importance=float(rng.lognormal(0, 1)))


def test_of_pages_beyond_their_maximum_age_the_oldest_goes_first_whatever_its_pen_has():
    world = World(rules(host_rate=0.5, timeout=1e6))
    pages = [
        world.add_page("busy", number, START - DAY, last_crawled_at=START - number, max_age=5.0)
        for number in range(100)
    ]
    _, now = crawl(world, 10.0, 2, START)
    bucket, row_of = world.shard.pages["bucket"], world.shard.row_of
    in_pen = [i.page_id for i in pages if bucket[row_of(i.page_id)] == PENNED]
    assert 0 < len(in_pen) < 80
    for page_id in in_pen:
        # They are to be crawled less often: what waits outside is more over its age now.
        PageView(world.shard, page_id)["max_age"] = 95.0
        world.reference.pages[page_id].max_age = 95.0
    rows = np.array([row_of(page_id) for page_id in in_pen], np.int32)
    world.shard.selector.touch(rows, reweigh=True)
    hosts, _ = crawl(world, 10.0, 40, now)
    assert len([host for host in hosts if host]) > 5
