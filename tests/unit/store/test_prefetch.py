"""Asking for memory changes nothing, and no index is wrong."""

import numpy as np

from shared.policy.compiled import compiled
from shared.store.prefetch import AHEAD, prefetch

PAIR = np.dtype([("wide", np.float64), ("narrow", np.int8)], align=True)


@compiled
def _sum_rows(values, rows):
    total = 0.0
    for place in range(rows.size):
        prefetch(values, rows[min(place + AHEAD, rows.size - 1)])
        total += values[rows[place]].wide
    return total


@compiled
def _ask_for_nothing(values, tables):
    for index in (-1, values.size, 1 << 40, -(1 << 40)):
        prefetch(values, index)
        prefetch(tables, index)


def test_rows_are_what_they_were():
    rng = np.random.default_rng(1)
    values = np.zeros(1000, PAIR)
    values["wide"] = rng.random(1000)
    rows = rng.integers(0, 1000, 5000).astype(np.int32)
    before = values.copy()
    assert np.isclose(_sum_rows(values, rows), values["wide"][rows].sum())
    assert np.array_equal(values, before)


def test_places_that_are_not_there_are_asked_for_in_vain():
    _ask_for_nothing(np.zeros(3, PAIR), np.zeros((3, 6)))
    _ask_for_nothing(np.zeros(0, PAIR), np.zeros((0, 6)))
