"""The calendar does its larger work in slices: coarse buckets, what is far away, what was left."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules
from test_calendar import START, WIDTH, come_up, pages_and_wheel
from test_shard_selection import START as SHARD_START

from services.scheduler.picking import wheel as calendar
from services.scheduler.picking import work_share
from services.scheduler.picking.wheel import (
    COARSE,
    FINE,
    begin_taking,
    entries_in,
    put_off,
    take_bucket,
    take_late,
    take_some,
    tidy,
)


def left_behind(count, rounds, rng):
    """Pages that were put off again and again, and when they are due."""
    pages, wheel = pages_and_wheel(count * (rounds + 1))
    due = {}
    for _ in range(rounds):
        for row in range(count):
            due[row] = START + 10.0 + float(rng.random()) * 5000.0
            put_off(wheel, pages, row, due[row])
    return pages, wheel, due


@pytest.mark.parametrize("most", [1, 100, 5000])
def test_what_was_left_behind_is_dropped_some_at_a_time_and_nothing_else_is(most):
    pages, wheel, due = left_behind(20_000, 6, np.random.default_rng(1))
    before, calls = entries_in(wheel), 0
    assert before > 100_000
    while calls < 10 or wheel.dial[0]["tidied"] < calendar.BUCKETS or wheel.dial[0]["held"] >= 0:
        entries = entries_in(wheel)
        tidy(wheel, pages, 20_000, most)
        calls += 1
        assert entries - entries_in(wheel) <= most + calendar.ENTRIES_IN_CHUNK
        if most == 1 and calls == 3_000:
            break  # in the middle of a bucket
    # Of a page that left a bucket and came back both entries may stay.
    assert most == 1 or entries_in(wheel) < 1.1 * 20_000
    met = {}
    for row, end in come_up(pages, wheel, START + 6000.0):
        if not put_off(wheel, pages, row, due[row]):
            assert row not in met
            met[row] = end
    assert met.keys() == due.keys()
    assert all(met[row] - WIDTH - 1e-6 <= due[row] < met[row] + 1e-6 for row in due)
    assert entries_in(wheel) == 0


def test_few_entries_that_were_left_behind_are_let_be():
    pages, wheel, _ = left_behind(1000, 3, np.random.default_rng(2))
    before = entries_in(wheel)
    tidy(wheel, pages, 1000, 10_000)
    assert entries_in(wheel) == before


def test_a_part_of_a_bucket_is_taken():
    pages, wheel = pages_and_wheel(200)
    for row in range(100):
        put_off(wheel, pages, row, START + 1.05)
    bucket = int(pages["bucket"][0])
    found = take_some(wheel, pages, bucket, 20).tolist()
    assert 20 <= len(found) < 20 + calendar.ENTRIES_IN_CHUNK
    assert entries_in(wheel) == 100 - len(found)
    put_off(wheel, pages, found[0], START + 1.05)
    rest = take_bucket(wheel, pages, bucket).tolist()
    assert sorted(rest) == sorted({*range(100)} - set(found[1:]))
    assert take_some(wheel, pages, bucket, 20).size == 0


def test_pages_beyond_the_calendar_do_not_come_up_together():
    pages, wheel = pages_and_wheel(20_000)
    for row in range(20_000):
        put_off(wheel, pages, row, START + 1e9)
    assert (pages["bucket"] >= FINE).all()
    _, together = np.unique(pages["bucket"], return_counts=True)
    assert together.max() <= 20_000 / (COARSE // 2) + 1
    # They come up in the later half of it.
    assert (pages["bucket"] - FINE >= COARSE // 2 - 1).all()


@pytest.mark.slow(2)
@pytest.mark.parametrize("delay", [3.0, pytest.param(2000.0, marks=pytest.mark.long)])
def test_pages_that_are_due_in_the_same_hundred_seconds_are_looked_at_some_at_each_tick(delay):
    """2000 s from now is in the coarse part."""
    world = World(rules(host_rate=1e6))
    rng = np.random.default_rng(3)
    for number in range(2000):
        world.add_page(
            f"h{number % 50}", number, SHARD_START - DAY, alpha=1e-9, last_crawled_at=SHARD_START,
            max_age=delay + float(rng.random()) * 100.0,
        )  # fmt: skip
    shard, now, picked = world.shard, SHARD_START, []
    shard.selector.prepare(now)
    most = 0
    while now < SHARD_START + delay + 110.0:
        before = shard.pages["bucket"][: shard.used].copy()
        slots = now + np.arange(1, 11) / 100.0
        picks = shard.select(slots, 100.0, 1e-3)
        picked += picks["row"][picks["row"] >= 0].tolist()
        now = float(slots[-1])
        moved = before != shard.pages["bucket"][: shard.used]
        most = max(most, int(moved.sum()))
    assert sorted(picked) == list(range(2000))
    assert most <= 2 * calendar.ENTRIES_IN_CHUNK + 3 * 20


def test_of_a_bucket_that_comes_up_some_may_be_taken_at_a_time():
    pages, wheel = pages_and_wheel(300)
    for row in range(100):
        put_off(wheel, pages, row, START + 1.05)
    bucket = int(pages["bucket"][0])
    assert begin_taking(wheel, bucket)
    put_off(wheel, pages, 0, START + 9.0)  # meanwhile something happened to it
    pages["bucket"][200:210] = calendar.ASLEEP
    for row in range(200, 210):
        # The bucket is used again for what comes up when it is its turn once more.
        put_off(wheel, pages, row, START + 1.05 + FINE * WIDTH)
    found = take_late(wheel, pages, 40).tolist()
    assert 40 <= len(found) < 40 + calendar.ENTRIES_IN_CHUNK
    assert not begin_taking(wheel, bucket)
    while wheel.dial[0]["late"] >= 0:
        found += take_late(wheel, pages, 40).tolist()
    assert sorted(found) == list(range(1, 100))
    assert entries_in(wheel) == 11


def test_a_bucket_that_is_being_tidied_is_not_taken_some_at_a_time():
    """Its entries are elsewhere, and would be put back after it has come up."""
    pages, wheel, _ = left_behind(20_000, 6, np.random.default_rng(1))
    while wheel.dial[0]["held"] < 0:
        tidy(wheel, pages, 20_000, 1)
    held = int(wheel.dial[0]["held"])
    assert not begin_taking(wheel, held)
    assert begin_taking(wheel, held + 1)


def rested_world(count, rest):
    """All were crawled at once, and rest for as long."""
    world = World(rules(host_rate=1e6, least_interval=rest))
    rng = np.random.default_rng(5)
    for number in range(count):
        world.add_page(
            f"h{number % 50}", number, SHARD_START - DAY, alpha=float(rng.lognormal(-3, 1)),
            last_crawled_at=SHARD_START,
        )  # fmt: skip
    return world


@pytest.mark.slow(2)
def test_pages_that_come_up_in_one_tick_are_looked_at_some_at_each(monkeypatch):
    monkeypatch.setattr(work_share, "_FEW_PAGES", 32)
    pages = 4000
    world = rested_world(pages, 3.0)
    shard, now, most, sure = world.shard, SHARD_START, 0, []
    shard.selector.prepare(now)
    for _ in range(300):
        before = shard.pages["bucket"][: shard.used].copy()
        slots = now + np.arange(1, 6) / 50.0
        best = np.sort(shard.selector.weigh(slots[0], 0.0, pages).priorities)[::-1][:5]
        unsure = shard.selector.uncertain_picks
        picks = shard.select(slots, 50.0, 0.0)
        is_best = np.allclose(np.sort(picks["priority"])[::-1][: best.size], best, rtol=2e-6)
        sure.append(shard.selector.uncertain_picks == unsure)
        assert is_best or not sure[-1]
        moved = before[before != shard.pages["bucket"][: shard.used]]
        most = max(most, int(np.bincount(moved[moved < FINE]).max(initial=0)))
        now = float(slots[-1])
    assert most < pages / 16
    # It takes some seconds, of which picks tell.
    assert 0 < sure.count(False) < 80
    assert all(sure[-40:])


@pytest.mark.parametrize(("later", "begin"), [(0.3, 0.0), (2000.0, 2100.0)])
def test_what_comes_up_after_very_many_waits_for_its_turn(monkeypatch, later, begin):
    """In a bucket of a tick, or after a standstill in one of a hundred seconds."""
    monkeypatch.setattr(work_share, "_FEW_PAGES", 32)
    world = rested_world(4000, 3.0)
    shard, picked = world.shard, []
    shard.pages["last_crawled_at"][2000:4000] += later
    shard.selector.prepare(SHARD_START)
    now = SHARD_START + begin
    for _ in range(120):
        slots = now + np.arange(1, 61) / 600.0
        picks = shard.select(slots, 600.0, 0.0)
        picked += picks["row"][picks["row"] >= 0].tolist()
        now = float(slots[-1])
    assert sorted(picked) == list(range(4000))
