"""Where pages are many, the guard is lowered a slice at a time, and picks tell if they are sure."""

import numpy as np
import pytest
from examples import some
from reference_shard import DAY
from test_shard_selection import START, random_world

from services.scheduler.picking import work_share
from services.scheduler.picking.scanning import priorities_at
from services.scheduler.picking.shedding import shed_listed

pytestmark = pytest.mark.usefixtures("many_pages")


@pytest.fixture
def many_pages(monkeypatch):
    """A few hundred pages are many."""
    monkeypatch.setattr(work_share, "_FEW_PAGES", 100)


def best_values(shard, now, count):
    """The greatest priorities of all pages now."""
    return np.sort(shard.selector.weigh(now, 0.0, shard.used).priorities)[::-1][:count]


def listed_values(selector, now):
    """What all listed pages are worth now."""
    board = selector._board
    rows = board.listed["row"][: board.state[0]["listed"]]
    return priorities_at(board.pages, board.attempts, rows[rows >= 0], now, board.terms)


def advance(world, rate, seconds, tick=1.0):
    """Pick at a rate; all is answered at once. Ticks in which a sure pick was not the best."""
    shard, wrong, now = world.shard, 0, world.now
    for _ in range(round(seconds / tick)):
        slots = now + np.arange(1, round(rate * tick) + 1) / rate
        expected = best_values(shard, slots[0], slots.size)
        unsure = shard.selector.uncertain_picks
        picks = shard.selector.select(slots, rate, 0.0)
        values = np.sort(picks["priority"])[::-1]
        sure = shard.selector.uncertain_picks == unsure
        wrong += sure and not np.allclose(values, expected, rtol=2e-6)
        for pick in picks[picks["row"] >= 0]:
            world.outcome(int(shard.lookup.ids[pick["row"]]), float(pick["time"]))
        now = float(slots[-1])
    world.now = now
    return wrong


@pytest.mark.parametrize(
    ("seed", "shards"),
    some([(0, 1), (1, 1), (0, 64), (1, 64), *((seed, 1) for seed in range(2, 6))], 3),
)
def test_sure_picks_are_the_best_whatever_the_bandwidth_does(seed, shards):
    rng = np.random.default_rng(seed)
    world = random_world(rng, pages=1500, hosts=60, host_rate=1e6)
    world.shard.selector.share_work(shards)
    world.now = START
    for rate in (5.0, 60.0, 2.0, 200.0, 10.0):
        assert advance(world, rate, 40.0) == 0
        for number in rng.choice(len(world.identities), 30):
            identity = world.identities[number]
            world.signal(identity.page_id, world.now)
    assert world.shard.selector.sweeps > 0
    assert world.shard.selector.rebuilds == 1


@pytest.mark.parametrize("factor", [10.0, 100.0])
def test_however_much_the_bandwidth_rises_no_slot_stays_empty(factor):
    world = random_world(np.random.default_rng(4), pages=1500, hosts=60, host_rate=1e6)
    world.now = START
    advance(world, 5.0, 40.0)
    slots = world.now + np.arange(1, round(5.0 * factor) + 1) / (5.0 * factor)
    picks = world.shard.selector.select(slots, 5.0 * factor, 0.0)
    assert (picks["row"] >= 0).all()


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("factor", [10.0, 40.0])
def test_pages_in_their_least_interval_fill_no_slots_while_the_guard_is_lowered(factor):
    """Those that are worth most were crawled a moment ago, and come up in the calendar next."""
    world = random_world(np.random.default_rng(5), 6000, 60, host_rate=1e6, least_interval=90.0)
    world.now = START
    advance(world, 10.0, 80.0)
    rate = 10.0 * factor
    for _ in range(10):
        slots = world.now + np.arange(1, round(rate) + 1) / rate
        picks = world.shard.selector.select(slots, rate, 0.0)
        assert (picks["row"] >= 0).all()
        world.now = float(slots[-1])


@pytest.mark.slow(1)
def test_after_a_fall_picks_are_sure_again():
    world = random_world(np.random.default_rng(7), pages=1500, hosts=60, host_rate=1e6)
    world.now = START
    advance(world, 2.0, 30.0)
    advance(world, 300.0, 90.0)
    unsure = world.shard.selector.uncertain_picks
    assert advance(world, 300.0, 60.0) == 0
    assert world.shard.selector.uncertain_picks == unsure


@pytest.mark.slow(1)
def test_what_is_not_needed_soon_goes_back_to_the_calendar():
    world = random_world(np.random.default_rng(8), pages=6000, hosts=60, host_rate=1e6)
    world.now = START
    advance(world, 500.0, 20.0)
    full = world.shard.selector.candidates
    for identity in world.identities[:4000]:
        world.signal(identity.page_id, world.now + DAY)
    advance(world, 5.0, 120.0)
    assert world.shard.selector.candidates < full or full < 1500
    assert world.shard.selector.guard > 0.0
    # Few who are far below the guard are left among those that are listed.
    selector = world.shard.selector
    far_below = listed_values(selector, world.now) < 0.4 * selector.guard
    assert far_below.sum() < selector._stock.wanted


def test_however_far_what_is_picked_is_above_the_guard_who_is_far_below_it_is_listed_no_more():
    world = random_world(np.random.default_rng(8), pages=6000, hosts=60, host_rate=1e6)
    world.now = START
    advance(world, 500.0, 20.0)
    board = world.shard.selector._board
    listed = int(board.state[0]["listed"])
    picked = 1e3 * board.listed["priority"][:listed].max()
    gone = shed_listed(board, listed // 2, picked, listed, 1.0)
    guard, left = board.state[0]["guard"], board.listed["priority"][: board.state[0]["listed"]]
    assert gone > listed / 10
    assert left[left > 0.0].min() > 0.4 * guard
