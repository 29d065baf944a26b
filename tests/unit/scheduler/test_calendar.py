"""The calendar: whatever moves, each page comes up in time, and once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.picking import wheel as calendar
from services.scheduler.picking.wheel import (
    COARSE,
    FINE,
    TICKS_IN_COARSE,
    entries_in,
    make_wheel,
    put_off,
    restart,
    take_bucket,
    with_room,
)
from services.scheduler.state.rows import ASLEEP, empty_rows

START = 1.7e9
WIDTH = 0.1


def pages_and_wheel(count):
    pages, _ = empty_rows(count)
    pages["bucket"] = ASLEEP
    wheel = make_wheel(count)
    restart(wheel, START, WIDTH)
    return pages, wheel


def come_up(pages, wheel, until):
    """Rows as their buckets come up until a time, each with the end of its tick."""
    dial, entries = wheel.dial[0], wheel.chains["entries"]
    for tick in range(int(dial["current"]) + 1, int((until - START) / WIDTH) + 1):
        dial["current"] = tick
        buckets = [tick % FINE]
        if tick % TICKS_IN_COARSE == 0:
            buckets.insert(0, FINE + (tick // TICKS_IN_COARSE) % COARSE)
        for bucket in buckets:
            if not entries[bucket]:  # as most are: to call what is compiled costs ten times as much
                continue
            for row in take_bucket(wheel, pages, bucket):
                yield row, START + (tick + 1) * WIDTH


@pytest.mark.slow(3)
@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 19), st.floats(0.0, 5000.0)), min_size=1, max_size=200))
def test_a_page_comes_up_once_by_its_last_time_wherever_it_was_before(moves):
    pages, wheel = pages_and_wheel(20)
    due = {}
    for row, delay in moves:
        if put_off(wheel, pages, row, START + WIDTH + delay):
            due[row] = START + WIDTH + delay
    met = {}
    for _ in range(40):
        now = START + WIDTH * (int(wheel.dial[0]["current"]) + 1500)
        for row, end in come_up(pages, wheel, now):
            # A coarse bucket comes up early: its pages are put where they belong more exactly.
            if not put_off(wheel, pages, row, due[row]):
                assert row not in met
                met[row] = end
    assert met.keys() == due.keys()
    for row, end in met.items():
        assert end - WIDTH - 1e-6 <= due[row] < end + 1e-6
    assert entries_in(wheel) == 0


def test_what_is_due_already_is_not_taken_and_what_never_is_sleeps():
    pages, wheel = pages_and_wheel(3)
    assert not put_off(wheel, pages, 0, START)
    assert not put_off(wheel, pages, 0, -math.inf)
    assert put_off(wheel, pages, 1, math.inf)
    assert pages["bucket"][1] == ASLEEP
    assert put_off(wheel, pages, 2, START + 1e12)
    assert entries_in(wheel) == 1


@pytest.mark.parametrize("count", [10, 5000])
def test_chunks_are_used_again(count):
    pages, wheel = pages_and_wheel(count)
    rng = np.random.default_rng(1)
    highest = []
    for _ in range(5):
        now = START + WIDTH * (int(wheel.dial[0]["current"]) + 1)
        for row in range(count):
            put_off(wheel, pages, row, now + float(rng.random()) * 50)
        list(come_up(pages, wheel, now + 60))
        highest.append(int(wheel.dial[0]["next_chunk"]))
    assert entries_in(wheel) == 0
    assert highest[-1] <= highest[0] + count // calendar.ENTRIES_IN_CHUNK
    assert highest[-1] <= calendar.chunks_for(count)


def test_a_larger_calendar_has_all_entries():
    pages, wheel = pages_and_wheel(100)
    for row in range(100):
        put_off(wheel, pages, row, START + 1 + row)
    larger = with_room(wheel, 1_000_000, 2_000_000)
    assert larger.chunks.shape[0] > wheel.chunks.shape[0]
    assert sorted(row for row, _ in come_up(pages, larger, START + 200)) == list(range(100))


def test_a_long_silence_passes_at_once():
    pages, wheel = pages_and_wheel(2)
    put_off(wheel, pages, 0, START + 5.0)
    later = START + 1e9
    calendar.skip_empty(wheel, later)
    behind = int((later - START) / WIDTH) - int(wheel.dial[0]["current"])
    assert behind <= FINE + COARSE * TICKS_IN_COARSE
    assert not put_off(wheel, pages, 1, START + 10.0)
