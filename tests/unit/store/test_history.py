"""Packed crawl histories and their rings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.store.binary import Blobs
from shared.store.history import (
    DEPTH,
    EMPTY,
    PACKED_BYTES,
    SOURCES,
    WAITING,
    WAITING_OFFSET,
    BadHistory,
    Rings,
    pack,
    records_of,
    unpack,
)

COUNTS = st.lists(st.integers(0, 65_535), min_size=SOURCES, max_size=SOURCES)
RECORD = st.tuples(st.floats(0, 1e6, width=32), COUNTS, st.integers(0, 1))


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


@pytest.mark.slow(0.5)
@settings(deadline=None)
@given(st.lists(st.lists(RECORD, max_size=DEPTH + 5), min_size=1, max_size=5))
def test_the_last_records_survive_in_order(histories):
    packed = pack(rings_with(histories), np.arange(len(histories)))
    for page, records in enumerate(histories):
        found = records_of(blob(packed, page))
        kept = [(r["interval_days"], r["signals"], r["changed"]) for r in found]
        assert kept == [(i, sum(s), bool(c)) for i, s, c in records[-DEPTH:]]
    again = pack(unpack(packed), np.arange(len(histories)))
    np.testing.assert_array_equal(again.arena, packed.arena)


def test_rows_are_packed_in_the_order_asked_for():
    rings = rings_with([[(1.0, 0, 0)], [(2.0, 0, 1)]])
    packed = pack(rings, np.array([1, 0, 1]))
    assert [records_of(blob(packed, row))[0]["interval_days"] for row in range(3)] == [2, 1, 2]


def test_no_history_is_as_wide_as_any():
    assert blob(pack(Rings.empty(1), np.array([0])), 0) == EMPTY
    full = pack(rings_with([[(1.0, 2, 1)] * 20]), np.array([0]))
    assert len(blob(full, 0)) == len(EMPTY) == PACKED_BYTES


@pytest.mark.parametrize(
    "packed", [b"", EMPTY[:-1], EMPTY + b"x", b"\x01" + EMPTY[1:], b"\x02\xff" + EMPTY[2:]]
)
def test_an_unreadable_history_is_named(packed):
    arena = np.frombuffer(EMPTY + packed, np.uint8)
    offsets = np.array([0, len(EMPTY), len(EMPTY) + len(packed)])
    with pytest.raises(BadHistory, match="row 1 is not of version 2"):
        unpack(Blobs(arena, offsets))


def test_what_stands_besides_the_records_survives():
    rings = rings_with([[(1.0, 0, 0)], []])
    rings.pending[0] = [1, 2, 3, 65_535]
    rings.totals[0] = [1, 2, 3, 4_000_000_000]
    rings.last_source[0] = 3
    rings.evidence[0] = [0.1, 0.2, 0.3, 0.4]
    rings.posterior_shape[0], rings.multiplier[0] = 2.5, 0.25
    again = unpack(pack(rings, np.arange(2)))
    for before, after in zip(rings, again, strict=True):
        np.testing.assert_array_equal(before, after)
    assert again.multiplier.tolist() == [0.25, 1.0]
    end = WAITING_OFFSET + WAITING.itemsize
    [waiting] = pack(rings, np.arange(2)).arena[WAITING_OFFSET:end].view(WAITING)
    assert (waiting["pending"].tolist(), waiting["multiplier"]) == ([1, 2, 3, 65_535], 0.25)
    assert waiting["last_source"] == 3


@pytest.mark.parametrize("pages", [0, 1, 2])
def test_unpacked_rings_can_be_written_however_few_they_are(pages):
    # Of one row at most, a view of what the database sent is as contiguous as a copy.
    sent = Blobs(
        np.frombuffer(EMPTY * pages, np.uint8), np.arange(pages + 1, dtype=np.int64) * len(EMPTY)
    )
    assert all(column.flags.writeable and column.flags.c_contiguous for column in unpack(sent))
