"""Arrays with NULLs in PostgreSQL's binary form, without a server."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shared.store.binary import UnsupportedArray
from shared.store.sparse_arrays import nothing_sent, parse_sparse

OIDS = {np.int16: 21, np.int32: 23, np.int64: 20, np.float64: 701}


def sent(values, is_null, oid):
    parts = [struct.pack(">iiiii", 1, 1, oid, values.size, 1)]
    wire = values.astype(values.dtype.newbyteorder(">"))
    for index, left_out in enumerate(is_null):
        item = wire[index : index + 1].tobytes()
        parts.append(struct.pack(">i", -1) if left_out else struct.pack(">i", len(item)) + item)
    return b"".join(parts)


@given(st.data())
def test_what_is_sent_comes_back_and_the_rest_is_what_is_usual(data):
    kind = data.draw(st.sampled_from(sorted(OIDS, key=OIDS.get)))
    count = data.draw(st.integers(1, 40))
    values, usual = (data.draw(hnp.arrays(kind, count)) for _ in range(2))
    is_null = data.draw(hnp.arrays(np.bool_, count))
    sparse = sent(values, is_null, OIDS[kind])
    each = parse_sparse(sparse).filled(usual)
    assert each.dtype == kind
    assert each.tobytes() == np.where(is_null, usual, values).tobytes()
    same = parse_sparse(sparse).filled(usual[0])
    assert same.tobytes() == np.where(is_null, usual[0], values).tobytes()


def test_of_an_array_of_which_nothing_is_sent_everything_is_usual():
    assert parse_sparse(nothing_sent(3)).filled(np.inf).tolist() == [np.inf] * 3


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_an_array_that_is_cut_off_or_goes_on_is_refused(cut):
    whole = sent(np.arange(3.0), np.array([False, True, False]), 701)
    for data in (whole[:-cut], whole + bytes(cut)):
        with pytest.raises(UnsupportedArray, match="other lengths"):
            parse_sparse(data)


@pytest.mark.parametrize(("dimensions", "oid"), [(2, 701), (1, 25)])
def test_what_numpy_cannot_hold_is_refused(dimensions, oid):
    with pytest.raises(UnsupportedArray, match="cannot be read"):
        parse_sparse(struct.pack(">iiiii", dimensions, 1, oid, 0, 1))
