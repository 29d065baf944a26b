"""Only shards that there are can be missed, and all of those are."""

from coordination_run import running

from services.coordinator.picture import Picture
from shared.contracts.layout import Layout


def heard_of(shards, seconds=12):
    """A picture, some time after each of some shards has reported once beside 0 and 1."""
    run = running()
    for _ in range(5):
        run.step()
    for shard in shards:
        run.hear(run.report(shard, 1.0, run.moment.clock - 1.0))
    for _ in range(seconds):
        run.step()
    return run, Picture(run.core)


def silent_ones(run, picture):
    picture.sample(run.moment, 0.0)
    state = picture.state(run.moment, 0.0, "one")
    rows = {row.shard for row in state.shards if row.silent}
    assert len(rows) == state.silent_shards
    assert state.live_shards == 2
    return rows


def test_a_shard_that_there_is_not_is_missed_by_nobody():
    run, picture = heard_of([2, 7, 4095])
    assert silent_ones(run, picture) == {2, 7, 4095}  # as long as nobody says which there are
    picture.there.take(Layout.of(4), run.moment.wall)
    assert silent_ones(run, picture) == {2, 3}


def test_a_shard_that_never_reported_to_this_coordinator_is_missed():
    run, picture = heard_of([])
    assert silent_ones(run, picture) == set()
    picture.there.take(Layout.of(4), run.moment.wall)
    picture.there.take(Layout.of(4), run.moment.wall + 15.0)
    run.step(20.0)
    state = picture.state(run.moment, 0.0, "one")
    assert [(row.shard, row.seconds_since_report) for row in state.shards if row.silent] == [
        (2, 20.0),
        (3, 20.0),
    ]
    assert run.shares() == {0: 0.25, 1: 0.75}, "it costs the others nothing"
    run.reporting |= {2: 1.0, 3: 1.0}
    run.step()
    assert picture.state(run.moment, 0.0, "one").silent_shards == 0


def test_a_shard_is_missed_once_a_growth_has_given_it_hosts():
    run, picture = heard_of([])
    layout = Layout.of(2).grown_to(4)
    picture.there.take(layout, run.moment.wall)
    assert silent_ones(run, picture) == set()
    picture.there.take(Layout(4, 2, frozenset({1})), run.moment.wall)
    assert silent_ones(run, picture) == {3}
