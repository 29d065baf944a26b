"""Selection without sorting finds what sorting finds, whatever is equal and whatever the order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.policy.kernels.ranks import nth_greatest

PRIORITIES = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf]),
)


@given(values=st.lists(PRIORITIES, min_size=1, max_size=60), data=st.data())
def test_as_many_as_the_rank_reach_it_and_none_is_lost(values, data):
    rank = data.draw(st.integers(1, len(values)))
    array = np.array(values)
    assert nth_greatest(array, rank) == np.sort(values)[::-1][rank - 1]
    assert np.array_equal(np.sort(array), np.sort(values))


@pytest.mark.parametrize("values", [np.ones(5_000), np.arange(5_000.0), np.arange(5_000.0)[::-1]])
def test_long_ones_that_are_equal_or_in_order(values):
    for rank in (1, 2_500, 5_000):
        assert nth_greatest(values.copy(), rank) == np.sort(values)[::-1][rank - 1]
