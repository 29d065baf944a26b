"""Listed pages that are worth far less than what is picked are not looked at at each tick."""

import numpy as np
import pytest
from examples import some
from reference_groups import shares_of
from reference_shard import DAY, World, rules
from test_shard_selection import START, random_world, something_happens

from services.scheduler.picking.dozing import _TURNS
from services.scheduler.picking.shedding import shed_listed
from services.scheduler.picking.weighing import weigh_listed

PAGES = 300
TICKS = 50


def listed_in(world):
    """The entries of the list."""
    board = world.shard.selector._board
    return board.listed[: int(board.state[0]["listed"])]


def noted(world):
    """Row of each listed page → until when it need not be looked at."""
    entries = listed_in(world)
    return dict(zip(entries["row"].tolist(), entries["until"].tolist(), strict=True))


def looked_at_in(ticks, slots):
    """Part of the listed pages that are looked at anew at a tick of so many slots, on average."""
    world = random_world(np.random.default_rng(1), PAGES, host_rate=1e6)
    now, parts = START, []
    for tick in range(ticks):
        before = noted(world) if tick else {}
        now += 0.1
        world.pick(now + np.arange(slots) * 1e-3, 10.0 * slots, 0.0)
        after = noted(world)
        stayed = before.keys() & after.keys()
        if tick > ticks // 2:
            is_same = [before[row] == after[row] > now for row in stayed]
            parts.append(1.0 - sum(is_same) / len(stayed))
    return float(np.mean(parts))


def test_few_are_where_slots_take_few_of_many():
    assert looked_at_in(TICKS, 1) < 0.3


def test_all_are_where_they_are_picked_soon():
    assert looked_at_in(4, 60) == 1.0


def test_pages_of_hosts_at_their_limits_do_not_sleep_long_among_the_others():
    """They would be taken for pages that the next slots can have."""
    rng = np.random.default_rng(1)
    world = World(rules(host_rate=0.2))
    for number in range(800):
        age, alpha = DAY * float(rng.exponential(10)), float(rng.lognormal(-2, 1))
        added, crawled = START - 100 * DAY, START - age
        world.add_page(f"h{number % 8}", number, added, alpha=alpha, last_crawled_at=crawled)
    for name in sorted(world.reference.hosts)[::2]:
        world.limit_host(name, 50.0, None, START)
    hosts, seen = world.shard.host_rows, 0
    looks_at_limit = np.zeros(hosts.size)
    for look in range(100):
        world.pick([START + 0.02 * look], 10.0)
        looks_at_limit = np.where(hosts["is_limited"] == 1, looks_at_limit + 1, 0)
        at_limits = looks_at_limit > 3 * _TURNS
        listed = world.shard.pages["host"][[row for row in noted(world) if row >= 0]]
        assert not at_limits[listed].any()
        seen += at_limits.any() and listed.size > 50
    assert seen > 20


@pytest.mark.parametrize("seed", some([1, 2, 59, 251, 355, 365, 368, *range(3, 10)], 7))
@pytest.mark.parametrize("is_quiet", [True, False])
def test_picks_are_the_most_urgent_though_most_pages_take_part_by_bounds(seed, is_quiet):
    """Half of the hosts wait for their group, with pages that are still listed among the others."""
    rng = np.random.default_rng(seed)
    world = random_world(rng, PAGES, host_rate=50.0, timeout=8.0, retry=5.0)
    for name in sorted(world.reference.hosts)[::2]:
        world.name_group(name, "together")
    limit = float(rng.choice([1.0, 2.0, 4.0]))
    world.limit_groups(shares_of("together", limit, {0: 1.0}, START))
    now, by_bounds = START, 0
    for tick in range(120):
        now += float(rng.uniform(0.05, 0.15))
        picked = world.pick([now], 10.0)
        by_bounds += (listed_in(world)["is_exact"] == 0).sum()
        if not is_quiet and tick % 7 == 0:
            something_happens(rng, world, now + 1e-6, picked)
    assert by_bounds > 120

    # None is listed twice, whatever happened to it: all are looked at once their bounds are over.
    world.pick([now + 60.0], 10.0, 0.0)
    rows = [row for row in listed_in(world)["row"] if row >= 0]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("seed", some(range(8), 3))
@pytest.mark.parametrize("speed", [1.0, 1e6])
def test_nobody_asks_of_most_of_the_pages_that_are_far_below_what_is_picked(seed, speed):
    """Nor are they missed when they come up, when less is picked, or when something happens."""
    rng = np.random.default_rng(seed)
    retries = {"timeout": 30.0 * speed, "retry": 20.0 * speed}
    world = random_world(rng, 2 * PAGES, host_rate=1e6, speed=speed, **retries)
    now, dozed = START, 0.0
    for tick in range(150):
        now += speed * float(rng.uniform(0.05, 0.15))
        slots = 30 if tick % 40 > 37 else 1
        picked = world.pick(now + speed * np.arange(slots) * 1e-3, 10.0 / speed, 0.0)
        state = world.shard.selector._board.state[0]
        dozed = max(dozed, state["dozing"] / max(state["listed"], 1))
        if tick % 3 == 0:
            something_happens(rng, world, now + speed * 0.04, picked)
    assert dozed > 0.3


def test_those_that_doze_go_where_they_belong_soon_after_their_host_came_to_its_limit():
    world = random_world(np.random.default_rng(5), 2 * PAGES, hosts=12, host_rate=1e6)
    now = START
    for _ in range(20):
        now += 0.1
        world.pick([now], 10.0)
    board = world.shard.selector._board
    assert board.state[0]["dozing"] > 2 * PAGES / 3
    number = int(listed_in(world)["host"][0])
    board.hosts["is_limited"][number] = 1
    assert board.hosts["penned"][number] == 0
    for look in range(1, _TURNS + 3):
        weigh_listed(board, now, float(board.state[0]["dozes_below"]), True)
        left = (listed_in(world)["host"] == number).sum()
        assert board.state[0]["dozing"] > PAGES / 3, look
    assert left == 0
    assert board.hosts["penned"][number] > 0


def test_none_that_was_looked_at_dozes_after_others_went_back_to_the_calendar():
    """Those that stay move up in the list, to places of pages that dozed."""
    world = random_world(np.random.default_rng(5), 2 * PAGES, host_rate=1e6)
    now = START
    for _ in range(20):
        now += 0.1
        world.pick([now], 10.0)
    board = world.shard.selector._board
    dozing = int(board.state[0]["dozing"])
    assert dozing > 2 * PAGES / 3
    dozed = set(listed_in(world)["row"][:dozing].tolist())
    best = listed_in(world)["priority"].max()
    assert shed_listed(board, 50, best, PAGES, 0.0) == PAGES
    left = listed_in(world)["row"].tolist()
    still = int(board.state[0]["dozing"])
    assert set(left[:still]) == dozed & set(left)
    assert len(left) > still > 0
    for _ in range(20):
        now += 0.01
        world.pick([now], 10.0)
