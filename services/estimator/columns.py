"""What goes into `effects`, and what comes out, column by column."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

UPSERT: Final = 0
REMOVE: Final = 1
ERASE: Final = 2
"""Operations of page updates; what is erased is removed, and nothing is known of it."""


class UpdateColumns(NamedTuple):
    """Page updates in rising order of time, one element an update."""

    rows: NDArray[np.int64]
    """−1: the page is not known."""
    times: NDArray[np.float64]
    operations: NDArray[np.int8]
    importance: NDArray[np.float64]
    """NaN: leave it as it is."""
    max_age_days: NDArray[np.float64]
    """NaN: leave it as it is."""
    crawled_at: NDArray[np.float64]
    """Of the copy that is held; −inf: not said."""
    urgent: NDArray[np.bool_]
    """Whether the page is to be crawled at once."""
    page_class: NDArray[np.int16]
    """Number in the shard; `AS_IT_IS`: nothing is said."""


class EventColumns(NamedTuple):
    """Signals and outcomes in rising order of time, one element an event."""

    rows: NDArray[np.int64]
    """−1: the page is not known."""
    times: NDArray[np.float64]
    kinds: NDArray[np.int8]
    digests: NDArray[np.int64]
    """Hash of the content digest; 0: none."""
    slots: NDArray[np.int8]
    """Of a signal: its source's slot at the host."""


class HostTables(NamedTuple):
    """What is counted by host, a row a host; written to in place."""

    records: NDArray[Any]
    """With A and B of the priors of α, `prior_shape` and `prior_rate`: their means A/B are per day,
    but for the factors of pages; and E, X and Q of quiet pages, `quiet_found`, `quiet_predicted`
    and `quiet_belief`, the first two of which are counted; (hosts,). Whole records, as one host's
    column alone would be an array of another kind, for which kernels were compiled once more."""
    precision: NDArray[np.float64]
    """How often signals of each source are true, (hosts, SOURCES)."""
    signals: NDArray[np.float64]
    """All signals ever, (hosts, SOURCES)."""
    expected_changes: NDArray[np.float64]
    """E of the burst tables, (hosts, AGE_BINS)."""
    predicted_changes: NDArray[np.float64]
    """X of the burst tables, (hosts, AGE_BINS)."""
    activity: NDArray[np.float64]
    """Factors of pages by their signals ever, (hosts, ACTIVITY_BINS)."""


class Verdicts(NamedTuple):
    """What became of each event, and where it was `OBSERVED` the new crawl record."""

    verdicts: NDArray[np.uint8]
    interval_days: NDArray[np.float64]
    """Since the crawl before."""
    signals: NDArray[np.int32]
    """In the interval."""
    changed: NDArray[np.bool_]
    staleness: NDArray[np.float32]
    """−ln P(fresh) just before the crawl, by what was known before it."""
    fresh_days: NDArray[np.float32]
    """Of the interval: for which the copy was expected to be fresh."""
    sources: NDArray[np.int16]
    """Source slots with signals in the interval, as bits."""
