"""For how many kinds of arguments a kernel is compiled: each costs time, in every caller."""

import numpy as np
from numba.core.caching import NullCache

from shared.policy.compiled import compiled


@compiled
def _times(number: int, factor: float, is_negative: bool) -> float:
    return -number * factor if is_negative else number * factor


@compiled
def _called_by_another(rows: np.ndarray, factor: float) -> float:
    found = _times(1, factor, True) + _times(2, factor, False)
    for row in rows:
        found += _times(row, factor, row > rows.size)
    return found


def test_constants_and_short_numbers_are_no_kinds_of_their_own():
    # From the disk it would come without what it calls.
    _called_by_another._cache = NullCache()
    rows = np.array([1, 2, 2**31 - 1], np.int32)
    assert _called_by_another(rows, 2.0) == 2.0 * (-1 + 2 + 1 + 2 - (2**31 - 1))
    assert _called_by_another(rows.astype(np.int8), 2.0) == 2.0 * (-1 + 2 + 1 + 2 - 1)
    assert len(_times.called.signatures) == 1
