"""What a record keeps in few bits: updates in their order, ages of changes, burst multipliers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.state import packing as packed
from services.scheduler.state.rows import NEVER, clear, empty_rows
from shared.policy.estimation.bursts import age_bin

NOW = 1.7e9
DAY = 86_400.0

TIMES = st.floats(-9e8, 3e9)
MULTIPLIERS = st.floats(0.1, 10.0)


@pytest.fixture
def fresh():
    pages, records = empty_rows(1)
    clear(pages, records)
    return pages[0], records[0]


def new_page():
    pages, records = empty_rows(1)
    clear(pages, records)
    return pages[0], records[0]


@settings(deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=20))
def test_no_update_undoes_a_later_one(times):
    _, record = new_page()
    last = NEVER
    for time in times:
        taken = packed.take_update(record, time)
        if time >= last:
            assert taken
        elif time < last - 2 / packed.UPDATE_STEPS:
            assert not taken
        last = max(last, time) if taken else last
        assert packed.updated_at(record) == pytest.approx(last, abs=2 / packed.UPDATE_STEPS)


def test_updates_a_moment_apart_are_told_apart(fresh):
    _, record = fresh
    assert packed.updated_at(record) == NEVER
    assert packed.take_update(record, NOW + 20e-6)
    assert not packed.take_update(record, NOW)
    assert packed.take_update(record, NOW + 20e-6)
    assert packed.take_update(record, 1e11), "later than can be told"
    assert packed.take_update(record, 1e11 + 1)
    assert not packed.take_update(record, NOW + DAY)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 200.0), st.booleans()), max_size=12))
def test_the_age_of_a_page_is_in_its_bin(crawls):
    page, record = new_page()
    now, changed_at = NOW, NEVER
    packed.set_crawled(page, record, now, False)
    for days, is_changed in crawls:
        now += days * DAY
        found = packed.set_crawled(page, record, now, is_changed)
        changed_at = now if is_changed else changed_at
        age = (now - changed_at) / DAY
        step = packed.CHANGE_SECONDS / DAY
        near = {age_bin(age), age_bin(max(age - step, 1e-6)), age_bin(age + step)}
        assert age_bin(found) == 1 if is_changed else age_bin(found) in near
        assert page["last_crawled_at"] == now
        if age < packed.LONG_AGO_DAYS:
            assert packed.days_since_change(record, now) == pytest.approx(age, abs=step)


@settings(deadline=None)
@given(st.floats(1e-6, 1e3), st.lists(MULTIPLIERS, max_size=8))
def test_a_rate_of_its_own_goes_with_the_multiplier(own, multipliers):
    page, record = new_page()
    packed.set_own_rate(page, record, own)
    assert page["alpha"] == pytest.approx(own)
    for multiplier in multipliers:
        packed.set_multiplier(page, record, multiplier)
        assert page["alpha"] == pytest.approx(own * multiplier, rel=2e-4)
    packed.set_multiplier(page, record, 1.0)
    assert page["alpha"] == pytest.approx(own, rel=1e-6)


def test_a_multiplier_is_kept_while_the_page_has_no_rate_of_its_own(fresh):
    page, record = fresh
    page["alpha"] = 0.5
    packed.set_multiplier(page, record, 4.0)
    assert (page["alpha"], packed.has_own_rate(record)) == (0.5, False)
    packed.set_own_rate(page, record, 0.1)
    assert page["alpha"] == pytest.approx(0.4)
    packed.set_own_rate(page, record, math.nan)
    assert not packed.has_own_rate(record)
    assert packed.multiplier_of(record) == 4.0


@pytest.mark.parametrize("multiplier", [0.0, 1e-300, 1000.0])
def test_a_multiplier_that_no_burst_has_is_clipped(fresh, multiplier):
    page, record = fresh
    packed.set_own_rate(page, record, 1.0)
    packed.set_multiplier(page, record, multiplier)
    assert page["alpha"] == pytest.approx(256.0 if multiplier > 1 else 1 / 256, rel=1e-3)


def test_what_is_loaded_is_as_if_it_had_happened():
    rng = np.random.default_rng(5)
    count = 500
    pages, records = empty_rows(count)
    clear(pages, records)
    crawled_at = np.where(rng.random(count) < 0.1, NEVER, NOW - rng.random(count) * 300 * DAY)
    changed_at = np.where(rng.random(count) < 0.3, NEVER, crawled_at - rng.random(count) * 2e7)
    updated_at = np.where(rng.random(count) < 0.1, NEVER, NOW - rng.random(count) * 1e8)
    own = np.where(rng.random(count) < 0.5, np.nan, rng.random(count))
    multipliers = np.exp(rng.uniform(-2.3, 2.3, count)).astype(np.float32)
    pages["last_crawled_at"] = crawled_at
    for row in range(count):
        packed.load_change(records[row], changed_at[row], crawled_at[row])
    packed.load_updates(records, updated_at)
    packed.load_rates(pages, records, own, multipliers, np.full(count, 0.25))
    for row in range(count):
        page, record = new_page()
        page["alpha"] = 0.25
        packed.take_update(record, updated_at[row])
        packed.set_multiplier(page, record, float(multipliers[row]))
        packed.set_own_rate(page, record, own[row])
        if changed_at[row] > NEVER:
            packed.set_crawled(page, record, changed_at[row], True)
            packed.set_crawled(page, record, crawled_at[row], False)
        assert record == records[row]
        assert page["alpha"] == pages[row]["alpha"]
