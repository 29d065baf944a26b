"""The hash table from page ids to rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.estimator.index import PageIndex

IDS = st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 50), unique=True, max_size=200)


@settings(deadline=None)
@given(IDS, IDS, st.integers(0, 200))
def test_it_finds_what_a_dict_finds(first, asked, split):
    index = PageIndex(np.array(first[:split], np.int64))
    later = np.array(first[split:], np.int64)
    index.add(later, np.arange(min(split, len(first)), len(first)))
    rows = {page_id: row for row, page_id in enumerate(first)}
    found = index.find(np.array(first + asked, np.int64))
    assert found.tolist() == [rows.get(page_id, -1) for page_id in first + asked]
    assert len(index) == len(first)


def test_ids_with_equal_low_bits_do_not_disturb_each_other():
    ids = np.arange(1000, dtype=np.int64) << 40
    index = PageIndex(ids[:10])
    index.add(ids[10:], np.arange(10, 1000))
    assert index.find(ids).tolist() == list(range(1000))
    assert index.find(ids + 1).max() == -1
