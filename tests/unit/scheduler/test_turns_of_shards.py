"""What shards of a process do once in a while they do one after the other: not all at one tick."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_guard_under_upper_tiers import RATE, shard_of_equals
from test_slot_filling import fill, make_shards, timeline

from services.scheduler.picking.work_share import Turn, WorkShare, next_turn

SHARDS = 16
TICK = 0.1


@given(
    now=st.floats(1e8, 1e10),
    period=st.floats(0.1, 100.0),
    phase=st.floats(0.0, 1.0, exclude_max=True),
)
def test_the_next_turn_is_within_a_period(now, period, phase):
    following = next_turn(now, period, phase)
    assert now * (1 - 1e-14) <= following <= now + period * (1 + 1e-5)


def test_shards_have_their_turns_one_after_the_other():
    phases = [WorkShare.of(SHARDS, place).phase for place in range(SHARDS)]
    turns = sorted(next_turn(1000.0, 0.8, phase) for phase in phases)
    assert np.diff(turns) == pytest.approx(0.8 / SHARDS)


def test_whoever_fills_slots_of_several_shards_gives_each_a_turn_of_its_own():
    shards = make_shards()
    shards[2].is_held = True
    fill(shards, timeline(80.0))
    phases = {number: float(shard.selector._state["phase"]) for number, shard in shards.items()}
    assert [phases[0], phases[1], phases[3]] == pytest.approx([0.0, 1 / 3, 2 / 3])


def begun(phase, ticks, tick=TICK):
    """At which of some ticks it is done that is done once in half a second."""
    turn, found = Turn(0.5), []
    for number in range(ticks):
        now = 1000.0 + number * tick
        if turn.has_come(now, phase):
            found.append(number)
            turn.put_off(now, phase)
    return found


def test_a_shard_alone_begins_at_once():
    assert begun(0.0, 12) == [0, 5, 10]


def test_where_there_is_cause_for_it_in_all_of_them_at_one_tick_they_begin_one_after_the_other():
    first = [begun(WorkShare.of(5, place).phase, 6)[0] for place in range(5)]
    assert sorted(first) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.9])
def test_it_is_done_though_ticks_are_rarer(phase):
    assert len(begun(phase, 20, tick=7.0)) >= 10


def test_it_is_done_at_each_tick_as_long_as_it_is_not_put_off():
    turn = Turn(0.5)
    done = [turn.has_come(1000.0 + 0.1 * tick, 0.5) for tick in range(12)]
    assert not done[0]
    assert all(done[5:])


def test_shards_do_not_wake_their_pages_at_the_same_ticks():
    """And each does so once a period."""
    wakes = []
    for place in (0, 8):
        driver, _ = shard_of_equals(never_crawled=0.0, count=20_000)
        selector = driver.shard.selector
        selector.share_work(SHARDS, place)
        driver.shard.prepare(driver.now)
        times = []
        for _ in range(60):
            driver.tick(TICK, RATE / 4, 0.0)
            times.append(float(selector._state["wakes_at"]))
        wakes.append(np.unique(times[30:]) / 0.8 % 1.0)
        assert 3 <= wakes[-1].size <= 5
    assert wakes[0] == pytest.approx(np.zeros(wakes[0].size), abs=1e-3)
    assert wakes[1] == pytest.approx(np.full(wakes[1].size, 0.5), abs=1e-3)
