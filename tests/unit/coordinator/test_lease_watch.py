"""When a follower may take the lease: never from a leader that it has not watched stand still."""

import pytest

from services.coordinator.leadership import LeaseWatch
from shared.store.lease import Lease

LEADER = Lease(3, "one", 10, is_connected=True)


def looks(watch, lease, start, seconds, step=0.5):
    """What the watch says at each look."""
    count = round(seconds / step)
    return [watch.may_take(lease, start + step * number) for number in range(count + 1)]


def test_a_lease_that_nobody_holds_is_free():
    assert LeaseWatch(3.0).may_take(Lease(0, "", 0, is_connected=False), 5.0)


def test_a_leader_that_beats_is_left_alone():
    watch = LeaseWatch(3.0)
    for beat in range(100):
        assert not watch.may_take(LEADER._replace(beat=beat), 1000.0 + beat * 0.5)


def test_a_leader_that_stands_still_is_replaced_after_the_leases_time():
    said = looks(LeaseWatch(3.0), LEADER, 1000.0, 4.0)
    assert said == [False] * 6 + [True] * 3


def test_a_leader_whose_connection_is_gone_is_replaced_after_a_second():
    gone = LEADER._replace(is_connected=False)
    assert looks(LeaseWatch(3.0), gone, 1000.0, 1.5) == [False, False, True, True]


def test_a_connection_that_comes_back_in_time_is_no_death():
    watch = LeaseWatch(3.0)
    gone = LEADER._replace(is_connected=False)
    assert looks(watch, gone, 1000.0, 0.5) == [False, False]
    assert not watch.may_take(LEADER, 1001.0)
    assert looks(watch, gone, 1001.5, 0.5) == [False, False]


@pytest.mark.parametrize("lease", [LEADER, LEADER._replace(is_connected=False)])
def test_who_could_not_look_has_not_seen_it_stand_still(lease):
    watch = LeaseWatch(3.0)
    assert not watch.may_take(lease, 1000.0)
    # The database was away, or this process was stopped.
    assert not watch.may_take(lease, 1060.0)
    assert not watch.may_take(lease, 1060.5)
