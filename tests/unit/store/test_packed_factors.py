"""Factors of hosts come back from the database as they were."""

import numpy as np
import pytest

from shared.policy.estimation.page_factors import ACTIVITY_BINS
from shared.store.host_factors import (
    NONE,
    BadHostFactors,
    HostFactors,
    pack_factors,
    unpack_factors,
)


def factors(directories=(3, 70, 65_535), values=(0.1, 2.0, 1 / 3)):
    activity = np.linspace(0.5, 4.0, ACTIVITY_BINS)
    return HostFactors(activity, np.array(directories, np.uint16), np.array(values, np.float64))


def test_packed_and_unpacked():
    for one in (factors(), factors((), ())):
        back = unpack_factors(pack_factors(one))
        for mine, theirs in zip(one, back, strict=True):
            assert mine.tolist() == theirs.tolist()
            assert mine.dtype == theirs.dtype


def test_nothing_is_nothing():
    assert not unpack_factors(NONE).is_known
    assert factors().is_known
    assert factors((), ()).is_known


def test_another_width_is_refused():
    with pytest.raises(BadHostFactors, match="upgrade"):
        unpack_factors(pack_factors(factors())[:-1])
    with pytest.raises(BadHostFactors, match="upgrade"):
        unpack_factors(b"1234")


def test_a_directory_that_is_not_named_has_the_factor_one():
    found = factors().of(np.array([0, 3, 4, 65_535], np.uint16))
    assert found.tolist() == [1.0, 0.1, 1.0, 1 / 3]


def test_moves_are_of_any_factor_there_is_on_either_side():
    one = factors()
    assert not one.is_beyond(one, 0.01)
    assert one.is_beyond(factors((3, 70), (0.1, 2.0)), 0.01)
    assert factors((3, 70), (0.1, 2.0)).is_beyond(one, 0.01)
    near = factors(values=(0.1, 2.01, 1 / 3))
    assert not near.is_beyond(one, 0.01)
    assert near.is_beyond(one, 0.001)
