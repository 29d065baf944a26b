"""Offsets that are finished in any order are committed in theirs."""

from hypothesis import given
from hypothesis import strategies as st
from scrapy_freshet.positions import Positions


@given(st.permutations(range(8)), st.integers(0, 8))
def test_nothing_is_committed_that_is_not_finished(order, finished):
    positions = Positions()
    for offset in range(8):
        positions.begin(0, 100 + offset)
    for offset in order[:finished]:
        positions.finish(0, 100 + offset)

    committed = positions.to_commit().get(0, 100)
    open_ = [100 + offset for offset in order[finished:]]
    assert committed == min(open_, default=108)


def test_what_is_committed_is_not_committed_again():
    positions = Positions()
    positions.begin(3, 7)
    positions.finish(3, 7)
    positions.committed(positions.to_commit())
    assert positions.to_commit() == {}


def test_a_partition_that_went_away_is_forgotten():
    positions = Positions()
    positions.begin(3, 7)
    positions.forget(3)
    positions.finish(3, 7)
    assert positions.to_commit() == {}
    assert not positions.is_open(3, 7)
