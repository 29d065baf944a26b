"""What an estimator makes of hosts as older versions have stored them."""

import numpy as np
import pytest

from services.estimator.hosts import Hosts
from services.estimator.refitting import set_beliefs
from services.estimator.shard import Shard
from shared.policy.estimation.quiet_pages import QuietPages
from shared.store.columns import HostColumns, host_rules
from shared.store.host_factors import NO_FACTORS
from shared.store.hosts import HostLearning


def loaded(names, found, predicted):
    """A shard of hosts whose signals prove true, each with E and X of its quiet pages."""
    count = len(names)
    learning = HostLearning.initial(count)
    learning.signals[:, 0], learning.precision[:] = 9.0, 0.8
    shard = Shard(0)
    shard.hosts = Hosts.load(
        HostColumns(
            *(np.arange(count), names, host_rules(count), np.zeros(count), np.full(count, 0.5)),
            *(np.full(count, 10.0), [[]] * count, learning, [NO_FACTORS] * count),
            QuietPages(np.array(found), np.array(predicted), np.ones(count)),
        )
    )
    return shard


def test_one_interval_that_counted_for_millions_of_changes_does_not_speak_for_all_hosts_for_good():
    names = ["h.one.example", *(f"h.site{number}.example" for number in range(10))]
    shard = loaded(names, [0.0, *[300.0] * 9, 0.0], [2e6, *[300.0] * 9, 0.0])

    set_beliefs([shard])

    beliefs = shard.hosts.records["quiet_belief"]
    assert beliefs[0] < 0.3
    assert beliefs[1:10] == pytest.approx(1.0, abs=0.02)
    assert beliefs[10] == pytest.approx(0.9, abs=0.02), "of which nothing was seen yet"


def test_what_is_within_memory_is_loaded_as_it_stands():
    shard = loaded(["a.example", "b.example"], [3.0, 0.0], [7.5, 0.0])

    assert shard.hosts.records["quiet_found"].tolist() == [3.0, 0.0]
    assert shard.hosts.records["quiet_predicted"].tolist() == [7.5, 0.0]
