"""What parts of a table have is put together in whatever order it comes."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.store.gathering import Gathered
from shared.store.reserved import FEW


@pytest.mark.parametrize("expected", [0, 10, 40 * FEW])
def test_what_was_added_stays_where_it_begins(expected):
    gathered, chance = Gathered(expected), random.Random(7)
    assert gathered.everything.size == 0
    parts = [chance.randbytes(chance.choice((0, 1, 1000, FEW))) for _ in range(60)]
    with ThreadPoolExecutor(4) as pool:
        begins = list(pool.map(gathered.add, parts))
    everything = gathered.everything.tobytes()
    assert len(everything) == sum(map(len, parts))
    for begin, part in zip(begins, parts, strict=True):
        assert everything[begin : begin + len(part)] == part
