"""What was done with late is counted, for the promise of how soon outcomes apply."""

from types import SimpleNamespace

import pytest

from shared.runtime.lag import LATE_SECONDS, late_ones

NOW = 1_800_000_000.0


def written(*ages):
    """Records that are so many seconds old."""
    return [SimpleNamespace(timestamp=int(1000 * (NOW - age))) for age in ages]


@pytest.mark.parametrize(
    ("ages", "late"),
    [
        ((), 0),
        ((1.0, 0.5), 0),
        ((LATE_SECONDS + 1, LATE_SECONDS - 1, 3.0), 1),
        ((900.0, 800.0, 700.0), 3),
        # A clock that is ahead: the first record says that they are in time.
        ((-5.0, 90.0), 0),
    ],
)
def test_records_are_late_after_a_minute(ages, late):
    assert late_ones(written(*ages), NOW) == late
