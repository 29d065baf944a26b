"""What is learned of hosts, packed."""

import numpy as np
import pytest

from shared.store.hosts import (
    INITIAL,
    PACKED_BYTES,
    BadHostLearning,
    HostLearning,
    pack_hosts,
    pack_sources,
    unpack_hosts,
    unpack_sources,
)


def test_what_is_packed_comes_back():
    random = np.random.default_rng(1)
    learned = HostLearning(*(random.random(column.shape) for column in HostLearning.initial(3)))
    packed = pack_hosts(learned)
    for before, after in zip(learned, unpack_hosts(packed.arena.tobytes(), 3), strict=True):
        np.testing.assert_array_equal(before, after)


def test_of_an_unknown_host_nothing_is_learned():
    assert len(INITIAL) == PACKED_BYTES
    host = unpack_hosts(INITIAL, 1)
    assert host.multipliers.tolist() == [[1.0] * 6]
    assert host.evidence == pytest.approx([np.log(2)])


def test_another_width_is_named():
    with pytest.raises(BadHostLearning, match="2 hosts take"):
        unpack_hosts(INITIAL, 2)


def test_sources_keep_their_names_and_order():
    names = ["web ping", 'a"b', "π"]
    assert unpack_sources(pack_sources(names)) == names


def test_a_signal_of_a_host_is_worth_what_its_usual_mix_is():
    learned = HostLearning.initial(2)
    learned.precision[:] = [0.9, 0.1, 0.5, 0.5]
    learned.signals[1] = [1, 3, 0, 0]
    assert learned.evidence == pytest.approx([-np.log(0.1), -np.log(1 - 0.3)])
