"""The hash table from page ids to rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.store.page_lookup import PageLookup

IDS = st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 50), unique=True, max_size=200)


@settings(deadline=None)
@given(IDS, IDS, st.integers(0, 200))
def test_it_finds_what_a_dict_finds(first, asked, split):
    lookup = PageLookup()
    known = np.array(first, np.int64)
    rows = np.arange(known.size, dtype=np.int32)
    lookup.add_many(known[:split], rows[:split])
    lookup.add_many(known[split:], rows[split:])
    expected = {page_id: row for row, page_id in enumerate(first)}
    found = lookup.find_many(np.array(first + asked, np.int64))
    assert found.tolist() == [expected.get(page_id, -1) for page_id in first + asked]


def test_ids_with_equal_low_bits_do_not_disturb_each_other():
    ids = np.arange(1000, dtype=np.int64) << 40
    lookup = PageLookup()
    lookup.add_many(ids[:10], np.arange(10, dtype=np.int32))
    lookup.add_many(ids[10:], np.arange(10, 1000, dtype=np.int32))
    assert lookup.find_many(ids).tolist() == list(range(1000))
    assert lookup.find_many(ids + 1).max() == -1
