"""Packed crawl histories and their rings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.store.binary import Blobs
from shared.store.history import DEPTH, VERSION, BadHistory, Rings, pack, records_of, unpack

RECORD = st.tuples(st.floats(0, 1e6, width=32), st.integers(0, 65_535), st.integers(0, 1))


def rings_with(histories):
    rings = Rings.empty(len(histories))
    for page, records in enumerate(histories):
        for number, (interval, signals, changed) in enumerate(records):
            slot = number % DEPTH
            rings.interval_days[page, slot] = interval
            rings.signals[page, slot] = signals
            rings.changed[page, slot] = changed
        rings.seen[page] = len(records)
    return rings


def blob(blobs, row):
    return bytes(blobs.arena[blobs.offsets[row] : blobs.offsets[row + 1]])


@settings(deadline=None)
@given(st.lists(st.lists(RECORD, max_size=DEPTH + 5), min_size=1, max_size=5))
def test_the_last_records_survive_in_order(histories):
    packed = pack(rings_with(histories), np.arange(len(histories)))
    for page, records in enumerate(histories):
        found = records_of(blob(packed, page))
        kept = [(r["interval_days"], r["signals"], r["changed"]) for r in found]
        assert kept == [(i, s, bool(c)) for i, s, c in records[-DEPTH:]]
    again = pack(unpack(packed), np.arange(len(histories)))
    np.testing.assert_array_equal(again.arena, packed.arena)


def test_rows_are_packed_in_the_order_asked_for():
    rings = rings_with([[(1.0, 0, 0)], [(2.0, 0, 1)]])
    packed = pack(rings, np.array([1, 0, 1]))
    assert [records_of(blob(packed, row))[0]["interval_days"] for row in range(3)] == [2, 1, 2]


def test_no_history_is_the_version_alone():
    assert blob(pack(Rings.empty(1), np.array([0])), 0) == bytes([VERSION])


def test_a_longer_history_keeps_its_end():
    record = np.zeros(1, [("i", "<f4"), ("s", "<u2"), ("c", "u1"), ("x", "u1")])
    body = b"".join(
        (record.__setitem__("i", number), record.tobytes())[1] for number in range(DEPTH + 3)
    )
    found = records_of(bytes([VERSION]) + body)
    assert [r["interval_days"] for r in found] == list(range(3, DEPTH + 3))


@pytest.mark.parametrize("packed", [b"", b"\x02", bytes([VERSION, 1, 2, 3])])
def test_an_unreadable_history_is_named(packed):
    good = bytes([VERSION])
    arena = np.frombuffer(good + packed, np.uint8)
    offsets = np.array([0, 1, 1 + len(packed)])
    with pytest.raises(BadHistory, match="row 1 is not of version 1"):
        unpack(Blobs(arena, offsets))
