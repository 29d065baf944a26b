"""A shard's hosts are loaded at once, and are what they are when they come one after the other."""

import numpy as np
import pytest

from services.scheduler.state.hosts import Hosts
from shared.contracts.identity import host_id_of
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives

TOLD = HostObjectives({"host-1.example": "harmonic"})


def names(count):
    return [f"www.host-{number}.example" for number in range(count)]


@pytest.mark.parametrize("objectives", [FRESHNESS_ALONE, TOLD], ids=["freshness", "by host"])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_hosts_that_are_loaded_at_once_are_as_those_that_come_one_by_one(count, objectives):
    at_once, one_by_one = Hosts(0.5, objectives), Hosts(0.5, objectives)
    ids = np.array([host_id_of(name) for name in names(count)], np.int64)
    at_once.load(names(count), ids)
    assert [one_by_one.intern(name) for name in names(count)] == list(range(count))
    # Others come later.
    later = [f"later-{number}.example" for number in range(100)]
    for hosts in (at_once, one_by_one):
        assert [hosts.intern(name) for name in later] == list(range(count, count + 100))
        assert [hosts.intern(name) for name in names(count)] == list(range(count))
    assert len(at_once) == len(one_by_one)
    assert list(at_once.names) == list(one_by_one.names) == names(count) + later
    np.testing.assert_array_equal(at_once.known, one_by_one.known)
    for mine, other in zip(at_once.learned.tables[:4], one_by_one.learned.tables[:4], strict=True):
        np.testing.assert_array_equal(mine[: count + 100], other[: count + 100])
    for mine, other in zip(
        at_once.learned.tables[4][:3], one_by_one.learned.tables[4][:3], strict=True
    ):
        np.testing.assert_array_equal(mine[: count + 100], other[: count + 100])
    if objectives is TOLD:
        assert at_once.objectives is not None
        assert one_by_one.objectives is not None
        np.testing.assert_array_equal(
            at_once.objectives[: count + 100], one_by_one.objectives[: count + 100]
        )
    assert at_once.find("nobody.example") is None
