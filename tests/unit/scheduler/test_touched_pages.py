"""Pages that are touched between picks: there is room for all, and they are where they are now."""

import dataclasses

import numpy as np
import pytest
from reference_shard import DAY, rules

from services.scheduler.picking.calendar import make_shard
from services.scheduler.picking.wheel import entries_in
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.rows import ASLEEP
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.contracts.request_ids import NO_REQUEST
from shared.rules.page_events import FAILED

NOW = 1.7e9


def with_pages(count):
    """A shard whose pages the calendar has placed."""
    shard = make_shard(0, rules(host_rate=10.0))
    add(shard, range(count))
    shard.selector.select(np.array([NOW]), 1.0, 0.0)
    return shard


def add(shard, numbers):
    for number in numbers:
        page = identify(f"https://{number % 50}.example/{number}")
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW - DAY), NOW - DAY)


def learn(shard, rates):
    """New rates of the first pages."""
    none = np.full(rates.size, np.nan)
    shard.parameters(shard.page_ids_of(np.arange(rates.size)), rates, none, np.zeros(rates.size))


def fail(shard, count):
    """Crawls of the first pages fail."""
    outcomes = Outcomes(
        shard.page_ids_of(np.arange(count)),
        np.full(count, NOW),
        np.full(count, FAILED, np.int8),
        np.full(count, NO_REQUEST, np.int64),
        np.zeros(count, np.uint32),
    )
    shard.outcomes(outcomes)


@pytest.mark.parametrize(("guard", "kept_in"), [(0.0, "list"), (0.5, "calendar")])
def test_there_is_room_for_pages_that_are_touched_again_and_again(guard, kept_in):
    shard = with_pages(1_000)
    shard.selector._board.state["guard"] = guard
    shard.pages["bucket"][:1_000] = ASLEEP
    rng = np.random.default_rng(1)
    for _ in range(1_100):
        learn(shard, rng.uniform(0.1, 1.0, 1_000))
        board = shard.selector._board
        assert board.state[0]["listed"] <= board.listed.size
        assert board.wheel.dial[0]["next_chunk"] <= board.wheel.chunks.shape[0]
    entries = {"list": board.state[0]["listed"], "calendar": entries_in(board.wheel)}
    assert entries[kept_in] > 1_000_000


@pytest.mark.parametrize("shares", [(), (0.5, 0.0, 0.0, 0.3)])
@pytest.mark.parametrize("host_rate", [1.0, 1000.0])
@pytest.mark.parametrize("times", [256, 3 * 256 + 7, 1000])
def test_a_page_is_asked_for_once_however_often_it_was_touched_before(shares, host_rate, times):
    some = rules(host_rate=host_rate)
    picking = dataclasses.replace(some.picking, shares=shares)
    shard = make_shard(0, dataclasses.replace(some, picking=picking))
    add(shard, range(200))
    shard.selector.select(np.array([NOW]), 1.0, 0.0)
    page = identify("https://hot.example/")
    shard.upsert(page, PageUpdate("upsert", page.url, importance=1e6, crawled_at=NOW - DAY), NOW)
    hot = np.array([shard.row_of(page.page_id)], np.int32)
    for _ in range(times):
        shard.selector.touch(hot)
    for tick in range(3):
        slots = NOW + 1.0 + tick + np.arange(1, 9) / 10.0
        rows = shard.select(slots, 10.0, 0.0)["row"].tolist()
        assert len(set(rows)) == len(rows) == 8
        assert (rows[0] == hot[0]) == (tick == 0)
        assert shard.attempts.rows[shard.pages[hot[0]]["attempt"]]["unanswered"] == 0


def grow_pages(shard):
    add(shard, range(200, 300))


def grow_hosts(shard):
    shard.limit_host("new.example", 1.0, None, NOW)


def grow_attempts(shard):
    fail(shard, 150)


@pytest.mark.parametrize("grow", [grow_pages, grow_hosts, grow_attempts])
def test_what_has_grown_is_looked_at_where_it_is_now(grow):
    shard = with_pages(200)
    learn(shard, np.ones(5))
    before = arrays_of(shard)
    grow(shard)
    assert any(now is not then for now, then in zip(arrays_of(shard), before, strict=True))
    learn(shard, np.ones(5))
    board = shard.selector._board
    looked_at = board.pages, board.records, board.attempts, board.hosts
    assert all(one is other for one, other in zip(looked_at, arrays_of(shard), strict=True))


def arrays_of(shard):
    return shard.pages, shard.records, shard.attempts.rows, shard.host_rows
