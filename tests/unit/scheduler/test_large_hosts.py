"""Hosts of very many pages: no tick looks at all of them, and picks tell if they are sure."""

import numpy as np
import pytest
from examples import some
from reference_shard import DAY, World, rules
from test_shard_selection import START

from services.scheduler.picking import work_share
from services.scheduler.picking.board import LISTED, clear_board, guard_of, settle_all
from services.scheduler.picking.pens import dissolve_pen
from services.scheduler.picking.scanning import priorities_at
from services.scheduler.picking.wheel import is_put_off

SLICE = 20
BUSY = "busy.example"

pytestmark = pytest.mark.usefixtures("few_are_many")


@pytest.fixture
def few_are_many(monkeypatch):
    """A hundred pages are many, and few are placed at a tick."""
    monkeypatch.setattr(work_share, "_FEW_PAGES", 100)
    monkeypatch.setattr(work_share, "_SLICE", 2 * SLICE)
    monkeypatch.setattr(work_share, "_LEAST_HOST_SLICE", SLICE)


def add_page(world, rng, host, number, now, mean_days):
    world.add_page(
        host,
        number,
        now - 100 * DAY,
        importance=float(rng.lognormal(0, 1)),
        alpha=float(rng.lognormal(1, 1)),
        last_crawled_at=now - float(rng.exponential(mean_days)) * DAY,
    )


def add_pages(world, rng, host, pages, mean_days):
    for number in range(pages):
        add_page(world, rng, host, number, START, mean_days)


def world_of(seed, busy=300, others=20):
    rng = np.random.default_rng(seed)
    world = World(rules(host_rate=1000.0, timeout=1e6))
    add_pages(world, rng, "busy", busy, 1.0)
    for host in range(others):
        add_pages(world, rng, f"h{host}", 5, 0.1)
    return world, rng


def pick(world, now, count, rate):
    """Fill slots; picks that count as sure are checked. Ids of the picked pages; whether sure."""
    selector = world.shard.selector
    slots = now + np.arange(1, count + 1) / rate
    unsure = selector.uncertain_picks
    picks = world.shard.select(slots, rate, 0.0)
    is_sure = selector.uncertain_picks == unsure
    ids = []
    for found, slot in zip(picks, slots.tolist(), strict=True):
        if is_sure:
            ids.append(world._checked(found, slot, float(slots[0]), 0.0))
        elif found["row"] >= 0:
            ids.append(int(world.shard.lookup.ids[found["row"]]))
            world.reference.crawl(ids[-1], slot)
    return [page_id for page_id in ids if page_id is not None], is_sure


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("seed", some(range(5), 2))
def test_sure_picks_are_the_best_whatever_happens_to_a_large_host(seed):
    world, rng = world_of(seed)
    world.limit_host(BUSY, 0.5, None, START)
    world.shard.selector.prepare(START)
    now, sure = START, []
    for limit, rate in ((0.5, 2.0), (0.5, 10.0), (50.0, 10.0), (0.2, 1.0), (1.0, 20.0), (0.3, 2.0)):
        world.limit_host(BUSY, limit, None, now)
        for _ in range(50):
            ids, is_sure = pick(world, now, 5, rate)
            sure.append(is_sure)
            now += 5 / rate
            for page_id in ids:
                world.outcome(page_id, now)
            for number in rng.choice(len(world.identities), 2):
                world.signal(world.identities[number].page_id, now)
            if rng.random() < 0.2:
                number = int(rng.integers(len(world.identities)))
                world.remove_page(world.identities[number].page_id, now)
            if rng.random() < 0.2:
                add_page(world, rng, "busy", f"new-{now}", now, 1.0)
    assert world.shard.selector.rebuilds == 1
    assert world.shard.selector._board.state[0]["host_sweeps"] > 0
    assert np.mean(sure) > 0.5


def places(world):
    shard = world.shard
    return shard.pages["bucket"][: shard.used].copy()


def moved_by(world, before):
    """Pages that have come from the calendar, or went there or to sleep, since then."""
    after = places(world)
    was, now = (np.array([is_put_off(int(b)) for b in of]) for of in (before, after))
    return int(((before != after) & (was | now)).sum())


@pytest.mark.parametrize(
    "fields", [{}, {"last_crawled_at": -1e300}], ids=["that were crawled", "new"]
)
def test_no_tick_places_more_than_a_slice_of_a_large_host_and_what_its_pen_keeps(fields):
    world = World(rules(host_rate=1.0, timeout=1e6))
    rng = np.random.default_rng(0)
    for number in range(2000):
        world.add_page(
            "busy",
            number,
            START - 100 * DAY,
            importance=float(1 + number % 3) if fields else float(rng.lognormal(0, 1)),
            alpha=float(rng.lognormal(-2, 1)),
            **({} if fields else {"last_crawled_at": START - float(rng.exponential(10)) * DAY}),
        )
    world.shard.selector.prepare(START)
    now, unsure, picked = START, 0, 0
    pen = 16 + 2 * np.sqrt(2000) + 4
    for tick in range(150):
        before = places(world)
        picks = world.shard.select(now + np.arange(1, 6) / 5.0, 5.0, 0.0)
        picked += int((picks["row"] >= 0).sum())
        assert moved_by(world, before) <= SLICE + 2 * pen + 5, tick
        unsure += world.shard.selector.uncertain_picks
        now += 1.0
    assert 150 <= picked <= 152
    assert world.shard.selector._board.state[0]["host_sweeps"] > 0
    assert world.shard.selector.uncertain_picks == 0
    assert world.shard.selector.rebuilds == 1


def test_a_pen_that_comes_to_its_end_leaves_no_guard_behind():
    world, _ = world_of(7, busy=200)
    selector = world.shard.selector
    world.limit_host(BUSY, 0.05, None, START)
    selector.prepare(START)
    now = START
    for limit, rate in ((0.05, 20.0), (1000.0, 0.2), (1000.0, 20.0), (1000.0, 200.0)):
        world.limit_host(BUSY, limit, None, now)
        for _ in range(30):
            ids, _ = pick(world, now, 5, rate)
            now += 5 / rate
            for page_id in ids:
                world.outcome(page_id, now)
    host = world.shard.host_rows[world.shard.hosts.find(BUSY)]
    assert host["guard"] <= selector.guard


def test_picks_are_not_sure_where_a_pen_is_used_up_faster_than_it_is_filled(monkeypatch):
    monkeypatch.setattr(work_share, "_LEAST_HOST_SLICE", 2)
    monkeypatch.setattr(work_share, "_SLICE", 2)
    world, _ = world_of(3, busy=1000)
    selector = world.shard.selector
    world.limit_host(BUSY, 4.7, None, START)
    selector.prepare(START)
    now, sure = START, []
    for _ in range(300):
        ids, is_sure = pick(world, now, 5, 10.0)
        sure.append(is_sure)
        now += 0.5
        for page_id in ids:
            world.outcome(page_id, now)
    assert all(sure[:20])
    assert not all(sure)
    # It is the pen: the guard of all pages has not moved.
    assert selector.sweeps == 0
    assert selector.rebuilds == 1


def board_under(guard):
    """Three pages of a host at its limit, placed under a guard: the board, what they are worth."""
    world = World(rules(timeout=1e6))
    add_pages(world, np.random.default_rng(0), "busy", 3, 1.0)
    shard = world.shard
    shard.selector.prepare(START)
    board, rows = shard.selector._board, np.arange(3)
    worth = priorities_at(board.pages, board.attempts, rows, START, board.terms)
    clear_board(board, 3, 1, START, 0.1)
    board.hosts["is_limited"][0] = 1
    place(board, guard * float(worth.max()))
    return board, worth


def place(board, guard):
    board.state["guard"] = board.state["certain_from"] = guard
    settle_all(board, 0, 3)


def test_pages_of_a_host_that_is_at_its_limit_follow_the_guard_that_holds_them_back():
    board, worth = board_under(2.0)
    assert all(is_put_off(int(bucket)) for bucket in board.pages["bucket"][:3])
    place(board, float(worth.min()) / 2)
    assert (board.pages["bucket"][:3] == LISTED).all()


def test_a_pen_that_is_dissolved_leaves_no_guard_that_holds_pages_back_later():
    board, worth = board_under(2.0)
    board.hosts["guard"][0] = float(worth.max())
    dissolve_pen(board, 0)
    board.state["guard"] = float(worth.min()) / 2
    assert guard_of(board, 0) == float(worth.min()) / 2
