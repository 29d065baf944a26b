"""A shard's pages and hosts, column by column, as others take them from the store."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.store.hosts import HostLearning
from shared.store.source_times import Ages, unpack_source_times

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Counts = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PageColumns:
    """Pages in rising order of their ids, one element a page. Times: Unix seconds, −inf never."""

    page_ids: Integers
    host_ids: Integers
    importance: Floats
    max_age_days: Floats
    """inf: no bound of its own."""
    unsignalled_change_rate: Floats
    """α, per day; NaN: the host's prior holds."""
    signal_evidence: Floats
    """κ̄; NaN: the host's holds."""
    signal_rate: Floats
    """γ, per day."""
    last_crawled_at: Floats
    last_attempt_at: Floats
    """Any outcome, failed ones too; where there are no failures, that of the last crawl."""
    last_changed_at: Floats
    last_signal_at: Floats
    updated_at: Floats
    """Of the last `page-updates` message."""
    failures: Counts
    """Consecutive."""
    digest: Integers
    """Hash of the content digest; 0: none."""
    status: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class LearningColumns:
    """What only the estimator needs, one element a page in the order of `PageColumns`."""

    first_seen_at: Floats
    signals: Counts
    """Since the last crawl."""
    signal_count: Integers
    crawls: Counts
    changes: Counts


@dataclass(frozen=True, slots=True)
class HostColumns:
    """The shard's hosts, in rising order of their ids."""

    host_ids: Integers
    names: list[str]
    max_crawls_per_second: Floats
    """NaN: the configured default."""
    blocked_until: Floats
    limit_updated_at: Floats
    prior_shape: Floats
    """A of the Gamma(A, B) prior of α; what holds before anything is known where nothing is."""
    prior_rate: Floats
    """B, days."""
    sources: list[list[str]]
    """Names of the sources that have a slot of their own."""
    learning: HostLearning


@dataclass(frozen=True, slots=True)
class SignalsBySource:
    """Pages of which several sources have sent signals, and when each did (`source_times`)."""

    rows: Integers
    """Places of the pages among all, rising."""
    ages: Ages

    @classmethod
    def none(cls) -> Self:
        """No page has several."""
        return cls(np.empty(0, np.int64), unpack_source_times(b""))
