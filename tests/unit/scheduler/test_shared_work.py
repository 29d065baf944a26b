"""However many shards a process has, and whatever pages: no tick waits for other work."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules
from test_shard_selection import START, random_world

from services.scheduler.demand.ripe import count_ripe
from services.scheduler.picking.board import URGENT
from services.scheduler.picking.work_share import WorkShare
from services.scheduler.state.rows import NEVER

THRESHOLDS = np.array([1e-6, 1e-3, 1.0])
HORIZON = 10.0


def slots_from(now, count, rate):
    return now + np.arange(1, count + 1) / rate


def ids_of(world, picks):
    return world.shard.page_ids_of(picks["row"]).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_a_shard_that_was_looked_at_before_picks_the_same_at_once(seed):
    usual, prepared = (random_world(np.random.default_rng(seed)) for _ in range(2))
    prepared.shard.selector.prepare(START)
    for world in (usual, prepared):
        for identity in world.identities[::7]:
            world.signal(identity.page_id, START)
    slots = slots_from(START + 1.0, 20, 5.0)
    expected = usual.shard.selector.select(slots, 5.0, 0.0)
    picks = prepared.shard.selector.select(slots, 5.0, 0.0)
    assert ids_of(prepared, picks) == ids_of(usual, expected)
    assert prepared.shard.selector.rebuilds == 1
    assert prepared.shard.selector.sweeps == 0


def test_new_pages_and_late_ones_are_in_their_heap_before_the_first_slots_are_filled():
    """A million of them would keep these waiting for a third of a second."""
    usual, prepared = World(rules(host_rate=1e6)), World(rules(host_rate=1e6))
    for world in (usual, prepared):
        for number in range(600):
            when = NEVER if number % 3 else START - 2 * DAY
            world.add_page("h", number, START - DAY, max_age=DAY, last_crawled_at=when)
    prepared.shard.selector.prepare(START)
    assert (prepared.shard.pages["bucket"][:600] == URGENT).all()
    assert prepared.shard.selector.candidates == 600
    slots = slots_from(START + 1.0, 50, 5.0)
    expected = usual.shard.selector.select(slots, 5.0, 0.0)
    picks = prepared.shard.selector.select(slots, 5.0, 0.0)
    assert ids_of(prepared, picks) == ids_of(usual, expected)


def test_a_shard_without_pages_can_be_looked_at():
    world = World(rules())
    world.shard.selector.prepare(START)
    assert (world.shard.selector.select(slots_from(START, 3, 1.0), 1.0, 0.0)["row"] == -1).all()


@pytest.mark.parametrize("shards", [1, 2, 64, 4096])
def test_shards_of_a_process_share_what_may_wait(shards):
    alone, share = WorkShare(), WorkShare.of(shards, 0)
    for name in ("few_pages", "slice", "sampled"):
        whole, own = getattr(alone, name), getattr(share, name)
        assert 0 < own <= whole
        assert own == pytest.approx(whole / min(shards, 32), abs=1)


def new_pages_of_slow_hosts(hosts, pages, rate=1e-4):
    world = World(rules(host_rate=rate))
    for host in range(hosts):
        for number in range(pages):
            world.add_page(f"h{host}", number, START)
    return world


def penned(world):
    return int(world.shard.host_rows["penned"][: world.shard.host_count].sum())


def test_new_pages_of_hosts_that_can_take_none_are_set_aside_some_at_a_tick(monkeypatch):
    monkeypatch.setattr(WorkShare, "slice", property(lambda _self: 50))
    world = new_pages_of_slow_hosts(20, 100)
    selector, now, found = world.shard.selector, START, 0
    for tick in range(60):
        before = penned(world)
        picks = selector.select(slots_from(now, 5, 5.0), 5.0, 0.0)
        found += int((picks["row"] >= 0).sum())
        assert penned(world) - before <= 50 + 5, tick
        now += 1.0
    # What each host can take at first is found all the same, and nothing more.
    assert found == 20 * 2
    assert selector.candidates == 0


def ripe_of(world, weighed):
    shard = world.shard
    return count_ripe(
        weighed.priorities,
        shard.pages["host"][weighed.rows],
        weighed.pages_each,
        weighed.hosts_each,
        shard.host_rows,
        shard.groups.room(HORIZON),
        THRESHOLDS,
        START + 30.0,
        HORIZON,
    )


def waiting_world(hosts, pages):
    """Hosts at their limits, every second of which can take a page soon."""
    world = new_pages_of_slow_hosts(hosts, pages)
    selector = world.shard.selector
    for second in range(30):
        selector.select(slots_from(START + second, 20, 20.0), 20.0, 0.0)
    rows = world.shard.host_rows[: world.shard.host_count]
    assert (rows["penned"] > 0).all()
    rows["tokens"][::2] = 1.0
    return world


def test_of_pages_that_wait_only_those_are_reported_that_their_hosts_can_take_soon():
    world = waiting_world(20, 40)
    weighed = world.shard.selector.weigh(START + 30.0, HORIZON, 100)
    is_penned = weighed.hosts_each[weighed.pages_each == 1.0]
    assert is_penned.size == 10
    assert ripe_of(world, weighed).tolist() == [10.0, 10.0, 10.0]


def test_where_very_many_hosts_wait_some_of_them_stand_for_all():
    world = waiting_world(200, 4)
    weighed = world.shard.selector.weigh(START + 30.0, HORIZON, 10)
    assert weighed.rows.size <= 2 * 10 + 1
    several = [
        ripe_of(world, world.shard.selector.weigh(START + 30.0, HORIZON, 10))[0] for _ in range(200)
    ]
    assert np.mean(several) == pytest.approx(100.0, rel=0.05)


def test_a_report_of_a_shard_that_nobody_looked_at_goes_by_a_sample():
    world = random_world(np.random.default_rng(3))
    weighed = world.shard.selector.weigh(START, HORIZON, 50)
    assert weighed.rows.size == 50
    assert weighed.pages_each.sum() == pytest.approx(world.shard.used)
    assert not np.isnan(weighed.priorities).any()
    assert (world.shard.pages["last_crawled_at"][weighed.rows] > NEVER + DAY).all()
