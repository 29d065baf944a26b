"""numpy arrays in PostgreSQL's binary forms, without a server."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shared.store.binary import (
    Blobs,
    UnsupportedArray,
    array_bytes,
    copy_bytes,
    parse_array,
)

DTYPES = (np.bool_, np.int16, np.int32, np.int64, np.float32, np.float64)


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, st.integers(0, 40))))
def test_arrays_come_back_as_they_went(array):
    back = parse_array(array_bytes(array))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_infinities_nan_and_extremes_survive():
    floats = np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324, 1.7e308])
    np.testing.assert_array_equal(parse_array(array_bytes(floats)), floats)
    whole = np.array([-(1 << 63), (1 << 63) - 1, 0])
    np.testing.assert_array_equal(parse_array(array_bytes(whole)), whole)


def test_an_empty_array_of_the_server_has_no_dimensions():
    assert parse_array(struct.pack(">iii", 0, 0, 701)).dtype == np.float64


@pytest.mark.parametrize(
    "array", [np.zeros((2, 2)), np.zeros(2, np.uint8), np.array(["text"]), np.array([1j])]
)
def test_what_has_no_type_is_refused(array):
    with pytest.raises(UnsupportedArray, match="cannot be sent"):
        array_bytes(array)


@pytest.mark.parametrize(("dimensions", "nulls", "oid"), [(1, 1, 701), (2, 0, 701), (1, 0, 25)])
def test_what_numpy_cannot_hold_is_refused(dimensions, nulls, oid):
    with pytest.raises(UnsupportedArray, match="cannot be read"):
        parse_array(struct.pack(">iiiii", dimensions, nulls, oid, 0, 1))


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(0, 10))
def test_a_server_finds_each_byte_string_among_all(items, first):
    ends = np.cumsum([len(item) for item in items])
    offsets = np.concatenate([[0], ends]).astype(np.int64)[min(first, len(items)) :]
    every, begins, lengths = Blobs(np.frombuffer(b"".join(items), np.uint8), offsets).slices
    found = [every[b - 1 : b - 1 + n] for b, n in zip(begins, lengths, strict=True)]
    assert found == items[min(first, len(items)) :]
    assert begins.dtype == lengths.dtype == np.int32


def test_a_copy_has_one_field_count_a_row():
    body = copy_bytes([np.array([1, 2], np.int16), np.array([True, False])])
    rows = b"".join(struct.pack(">hihi?", 2, 2, n, 1, flag) for n, flag in ((1, True), (2, False)))
    assert body == b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows + b"\xff\xff"


def test_what_all_rows_of_a_copy_have_in_common_need_not_be_a_column():
    ids = np.array([7, 8, 9], np.int64)
    rates, counts = np.full(3, np.nan), np.full(3, 4, np.int32)
    alike = copy_bytes([np.int16(3), ids, np.float64(np.nan), b"abc", np.int32(4)])
    assert alike == copy_bytes([np.full(3, 3, np.int16), ids, rates, b"abc", counts])


def test_a_copy_of_no_rows_has_none():
    assert copy_bytes([np.empty(0, np.int64), np.int16(3)]) == (
        b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"
    )
