"""A shard's pages and hosts, column by column, as others take them from the store."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.contracts.fields import MAX_NAMED_GROUP_LENGTH
from shared.policy.estimation.quiet_pages import QuietPages
from shared.store.host_factors import HostFactors
from shared.store.hosts import HostLearning
from shared.store.page_status import NEVER
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
    urgent_at: Floats
    """Of the last one that asked for the page at once; −inf: none did."""
    failures: Counts
    """Consecutive."""
    misses: NDArray[np.int16]
    """404s among them."""
    digest: Integers
    """Hash of the content digest; 0: none."""
    status: NDArray[np.int16]
    signal_count: Integers
    """All signals ever."""
    page_class: NDArray[np.int16]
    """Number of the page's class in its shard; 0: none."""


@dataclass(frozen=True, slots=True)
class RemovedPages:
    """Pages that were removed, in rising order of their ids."""

    page_ids: Integers
    removed_at: Floats
    """Time of the update that said so, Unix seconds."""

    @classmethod
    def none(cls) -> Self:
        """Of a shard without any."""
        return cls(np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, slots=True)
class UnansweredPages:
    """Pages whose last requests were not answered in time, one element each. Unix seconds."""

    page_ids: Integers
    requests: NDArray[np.int16]
    """How many in a row, up to the last one."""
    requested_at: Floats
    """Of the last one."""
    deadline_at: Floats
    """Until when that waited."""
    last_attempt_at: Floats
    """The last crawl of any outcome that was known then."""

    @classmethod
    def none(cls) -> Self:
        """No page."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int16), *(np.empty(0) for _ in range(3)))

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All of them, in their order."""
        times = self.requested_at, self.deadline_at, self.last_attempt_at
        return self.page_ids, self.requests, *times

    def chosen(self, which: NDArray[np.bool_] | slice) -> Self:
        """Some of them."""
        return type(self)(*(column[which] for column in self.columns))


@dataclass(frozen=True, slots=True)
class UnansweredNews:
    """What is to be written of the unanswered pages of a shard."""

    shard: int
    claim: str
    """The fencing token by which its scheduler has loaded it."""
    pages: UnansweredPages
    """Each at most once."""
    answered: Integers
    """Ids of others, which may have been written before, and wait no more, or are gone."""


@dataclass(frozen=True, slots=True)
class LearningColumns:
    """What only the estimator needs, one element a page in the order of `PageColumns`."""

    first_seen_at: Floats
    signals: Counts
    """Since the last crawl."""
    crawls: Counts
    changes: Counts


HOST_RULES: Final = np.dtype(
    [
        ("max_crawls_per_second", np.float64),
        ("blocked_until", np.float64),
        ("crawl_delay", np.float64),
        ("asked_until", np.float64),
        ("failures", np.int32),
        ("failed_at", np.float64),
        ("max_open_requests", np.int16),
        ("named_group", f"S{MAX_NAMED_GROUP_LENGTH}"),
        ("named_since", np.float64),
    ]
)
"""The rules of a host, as the columns of `hosts` have them; NaN, no request, or an empty name:
none."""


def host_rules(hosts: int) -> NDArray[Any]:
    """The rules of so many hosts, of which nothing is said."""
    rules = np.zeros(hosts, HOST_RULES)
    rules["max_crawls_per_second"] = rules["crawl_delay"] = np.nan
    for name in ("blocked_until", "asked_until", "failed_at", "named_since"):
        rules[name] = NEVER
    return rules


@dataclass(frozen=True, slots=True)
class HostColumns:
    """The shard's hosts, in rising order of their ids."""

    host_ids: Integers
    names: list[str]
    rules: NDArray[Any]
    """`HOST_RULES`, one a host."""
    limit_updated_at: Floats
    prior_shape: Floats
    """A of the Gamma(A, B) prior of α; what holds before anything is known where nothing is."""
    prior_rate: Floats
    """B, days."""
    sources: list[list[str]]
    """Names of the sources that have a slot of their own."""
    learning: HostLearning
    factors: list[HostFactors]
    quiet: QuietPages


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
