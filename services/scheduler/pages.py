"""What a shard remembers of a page, and of a host: one fixed-width row each.

Rows and not separate columns, because a pick looks at a page as a whole: one or two cache lines
instead of a dozen. `rows["importance"]` is still a column.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.store.models import ACTIVE, GONE, NEVER, REMOVED

__all__ = [
    "ACTIVE",
    "GONE",
    "HOST",
    "NEVER",
    "PAGE",
    "REMOVED",
    "Rows",
    "clear",
    "empty_pages",
    "grown",
]

Rows: TypeAlias = NDArray[Any]
"""A structured array of `PAGE` or `HOST`."""

PAGE: Final = np.dtype(
    [
        ("importance", np.float64),
        ("alpha", np.float64),  # per day, burst multiplier included
        ("kappa", np.float64),  # of one signal of the usual weight
        ("gamma", np.float64),  # per day
        ("last_crawled_at", np.float64),
        ("deadline", np.float64),  # of the request in flight; NEVER: none
        ("retry_at", np.float64),  # not before: the last crawl failed
        ("max_age", np.float64),  # seconds; infinite: no bound
        ("signals", np.float32),  # since the last crawl, each by the weight of its source
        ("host", np.int32),
        ("listed", np.int32),  # place among the candidates of the selection, from 1; 0: none
        ("status", np.uint8),
        ("failures", np.uint16),
        ("url_length", np.int32),
        ("page_id", np.int64),
        ("last_attempt_at", np.float64),
        ("last_signal_at", np.float64),
        ("updated_at", np.float64),
        ("requested_us", np.int64),  # of the last request: Unix microseconds
        ("url_start", np.int64),
        ("own_alpha", np.float64),  # as learned of the page, per day; NaN: its host's prior holds
        ("change_age", np.float32),  # days from its last change to its last crawl; infinite: none
        ("multiplier", np.float32),  # of own_alpha, for the page's age at its last crawl
        ("digest", np.uint32),  # part of the hash of its content's digest; 0: none
    ],
    align=True,
)
"""What a pick reads comes first."""

HOST: Final = np.dtype(
    [
        ("rate", np.float64),  # crawls per second
        ("tokens", np.float64),
        ("filled_at", np.float64),
        ("blocked_until", np.float64),
        ("typical_value", np.float64),  # of the pages crawled of late
        ("held_back", np.float64),  # greatest priority that the last scan had no room for
        ("pages", np.int32),
        ("own_limit", np.uint8),
    ],
    align=True,
)


def empty_pages(capacity: int) -> Rows:
    """Free rows."""
    rows = np.zeros(capacity, PAGE)
    clear(rows)
    return rows


def clear(rows: Rows) -> None:
    """Make rows free; a candidate stays one, so that it is not listed twice."""
    rows["status"] = REMOVED
    for name in ("last_crawled_at", "deadline", "retry_at", "last_attempt_at", "last_signal_at"):
        rows[name] = NEVER
    rows["updated_at"] = NEVER
    rows["max_age"] = np.inf
    rows["page_id"] = -1
    rows["own_alpha"] = np.nan
    rows["change_age"] = np.inf
    rows["multiplier"] = 1.0
    rows["signals"] = rows["failures"] = rows["requested_us"] = rows["digest"] = 0


def grown(rows: Rows, capacity: int, fresh: Rows) -> Rows:
    """The rows in a larger array, whose end is as `fresh`."""
    larger = np.empty((capacity, *rows.shape[1:]), rows.dtype)
    larger[: len(rows)] = rows
    larger[len(rows) :] = fresh[: capacity - len(rows)]
    return larger
