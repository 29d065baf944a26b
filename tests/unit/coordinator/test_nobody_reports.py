"""Where no report comes any more, as a broker is away or the coordinator stood still, what held
goes on: all schedulers may be well."""

import pytest
from coordination_run import running

from services.coordinator.picture import Picture


def silenced(seconds=12):
    run = running()
    for _ in range(5):
        run.step()
    run.reporting = {}
    for _ in range(seconds):
        run.step()
    return run


def test_the_shards_keep_their_shares_and_are_told_to_be_silent():
    run = silenced(60)
    assert run.shares() == {0: 0.25, 1: 0.75}
    state = Picture(run.core).state(run.moment, 0.0, "one")
    assert (state.live_shards, state.silent_shards) == (0, 2)
    assert state.now.achieved_ratio == 0.0
    assert state.notice == "no shard reports: are the schedulers running?"


def test_a_new_budget_holds_for_them_all_the_same():
    run = silenced()
    run.set_bandwidth(5.0)
    run.step()
    assert run.published[-1].crawls_per_second == 5.0
    assert run.shares() == {0: 0.25, 1: 0.75}


def test_a_coordinator_that_stood_still_takes_nothing_from_anybody():
    run = running()
    for _ in range(5):
        run.step()
    run.wall += 20.0
    assert run.core.next(run.moment).cause == "refresh"
    run.step()
    assert run.shares() == {0: 0.25, 1: 0.75}


def test_the_first_that_reports_again_has_what_silent_ones_had():
    run = silenced()
    run.reporting = {1: 3.0}
    run.step()
    assert run.published[-1].cause == "silent-shard"
    assert run.shares() == {1: pytest.approx(1.0)}
