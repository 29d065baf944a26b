"""Crawl histories of many pages as columns: the ragged layout, its validation, and ring buffers.

A crawl *record* is (interval, signals, changed): the days since the crawl before, the change
signals of each source that arrived in them, and whether the crawl found a change. Two layouts hold
the records of many pages, and every estimator takes both:

- ragged: all records of page 0, then of page 1, and so on, with `offsets` of shape (pages + 1,);
- rings: arrays of shape (pages, H), one row a page, and `count`, the number of records ever seen;
  record number j lies in slot j mod H, so a row holds the last min(count, H) records. The order of
  records inside a row never matters to an estimator.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.uint8]

SHORTEST_INTERVAL = 1e-9
"""Days. A changed record of zero length and without signals would be impossible under the model."""

LONGEST_INTERVAL = 1e9
"""Days. Keeps sums finite whatever a caller hands in."""


class Histories(NamedTuple):
    """Ragged crawl histories, validated, in the types the compiled loops expect."""

    intervals: Floats
    """Days since the crawl before, shape (records,)."""
    signals: Floats
    """Signals per source within the interval, shape (records, sources)."""
    changed: Flags
    """1 where the crawl found a change, shape (records,)."""
    offsets: Integers
    """Page i owns records offsets[i]:offsets[i + 1], shape (pages + 1,)."""

    @property
    def pages(self) -> int:
        """Number of pages."""
        return int(self.offsets.size - 1)


def ragged_histories(intervals: Any, signals: Any, changed: Any, offsets: Any) -> Histories:
    """Check and convert ragged histories.

    `intervals` (m,) days, finite and ≥ 0; `signals` (m,) or (m, K) counts, finite and ≥ 0;
    `changed` (m,) of 0 and 1; `offsets` (pages + 1,) from 0 to m, never falling.

    Raises ValueError that names the first page and value at fault.
    """
    days = np.ascontiguousarray(intervals, dtype=np.float64)
    counts = np.asarray(signals, dtype=np.float64)
    counts = np.ascontiguousarray(counts.reshape(-1, 1) if counts.ndim == 1 else counts)
    flags = np.asarray(changed)
    bounds = np.ascontiguousarray(offsets, dtype=np.int64)
    if days.ndim != 1 or counts.ndim != 2 or flags.ndim != 1 or bounds.ndim != 1:
        raise ValueError(
            f"histories need intervals (m,), signals (m,) or (m, K), changed (m,) and offsets "
            f"(pages + 1,); got {days.shape}, {counts.shape}, {flags.shape}, {bounds.shape}"
        )
    if not days.size == counts.shape[0] == flags.size:
        raise ValueError(
            f"histories have {days.size} intervals, {counts.shape[0]} signals and {flags.size} "
            "changed flags; give one of each for every crawl"
        )
    if bounds.size == 0 or bounds[0] != 0 or bounds[-1] != days.size or (np.diff(bounds) < 0).any():
        raise ValueError(
            f"offsets must start at 0, never fall and end at the number of records ({days.size})"
        )
    _check_records(days, bounds, np.isfinite(days) & (days >= 0), "interval", "finite days ≥ 0")
    well_counted = (np.isfinite(counts) & (counts >= 0)).all(axis=1)
    _check_records(counts, bounds, well_counted, "signals", "finite counts ≥ 0")
    _check_records(flags, bounds, (flags == 0) | (flags == 1), "changed", "0 or 1")
    return Histories(days, counts, np.ascontiguousarray(flags, dtype=np.uint8), bounds)


def _check_records(
    values: NDArray[Any], offsets: Integers, good: Any, name: str, wanted: str
) -> None:
    if np.all(good):
        return
    record = int(np.argmin(good))
    page = int(np.searchsorted(offsets, record, side="right")) - 1
    raise ValueError(f"page {page}, record {record}: {name} is {values[record]}, must be {wanted}")


@compiled
def sane_interval(days: float) -> float:
    """`days` within [SHORTEST_INTERVAL, LONGEST_INTERVAL]; NaN becomes the shortest."""
    if not days > SHORTEST_INTERVAL:
        return SHORTEST_INTERVAL
    return min(days, LONGEST_INTERVAL)


@compiled
def longest_history(offsets: Integers) -> int:
    """The largest number of records that one page of a ragged layout has (at least 1)."""
    longest = 1
    for page in range(offsets.size - 1):
        longest = max(longest, offsets[page + 1] - offsets[page])
    return longest
