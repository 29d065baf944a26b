"""Decisions that are too old to be kept go, whatever clocks have said meanwhile."""

from store_contents import NOW

from shared.contracts.messages import Multipliers
from shared.store.multipliers import (
    PRUNED_AT_ONCE,
    Decided,
    append_multipliers,
    last_multipliers,
    prune_multipliers,
    row_of,
)
from shared.units import SECONDS_PER_DAY


def append(store, times):
    sent = [Multipliers(n, at, at, 0.1, 5.0, 0.0, [], "demand") for n, at in enumerate(times)]
    append_multipliers(store, [row_of(Decided(message, 1.0, 1.0, 1)) for message in sent])


def test_old_decisions_go_a_few_at_a_time(store, monkeypatch):
    monkeypatch.setattr("shared.store.multipliers.PRUNED_AT_ONCE", 3)
    append(store, [NOW + n for n in range(8)])
    assert [prune_multipliers(store, NOW + 5) for _ in range(3)] == [3, 2, 0]
    assert [row["version"] for row in last_multipliers(store, 9)] == [7, 6, 5]


def test_decisions_of_a_clock_that_was_ahead_keep_no_old_ones_behind_them(store):
    append(store, [NOW + 365 * SECONDS_PER_DAY] * PRUNED_AT_ONCE)
    append(store, [NOW - 400 * SECONDS_PER_DAY] * 10)
    before = NOW - 30 * SECONDS_PER_DAY
    assert [prune_multipliers(store, before) for _ in range(2)] == [10, 0]
    append(store, [NOW])
    assert prune_multipliers(store, before) == 0
    assert len(last_multipliers(store, 2 * PRUNED_AT_ONCE)) == PRUNED_AT_ONCE + 1


def test_decisions_of_the_right_clock_behind_those_go_in_their_turn(store):
    append(store, [NOW + 365 * SECONDS_PER_DAY] * PRUNED_AT_ONCE)
    append(store, [NOW - 31 * SECONDS_PER_DAY, NOW - 29 * SECONDS_PER_DAY, NOW])
    assert prune_multipliers(store, NOW - 30 * SECONDS_PER_DAY) == 1
