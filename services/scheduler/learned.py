"""What the estimator has learned of hosts, and what that makes of their pages.

A page without a crawl record takes α and κ̄ from its host. The rate α of one that has its own is
multiplied by the host's burst multiplier for the page's age, fixed at each crawl until the next. A
signal counts by the weight of its source at the host, κ_k/κ̄, so that κ̄ times the count is the
evidence of all sources.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.pages import NEVER, UNSET, Rows, grown
from shared.contracts.messages import HostParameters
from shared.policy.compiled import compiled
from shared.policy.estimation.bursts import AGE_BINS, age_bin
from shared.policy.estimation.host_priors import INITIAL_CHANGE_RATE, INITIAL_PRECISION
from shared.policy.estimation.smoothed import PSEUDO_DAYS, PSEUDO_SIGNALS
from shared.store.history import SOURCES
from shared.store.snapshot import HostColumns

SECONDS_PER_DAY: Final = 86_400.0

_INITIAL_EVIDENCE: Final = -math.log1p(-INITIAL_PRECISION)


class HostTables(NamedTuple):
    """What the rows of pages are computed from, a row a host."""

    alpha: NDArray[np.float64]
    """Prior mean of α, per day; (hosts,)."""
    kappa: NDArray[np.float64]
    """κ̄; (hosts,)."""
    multipliers: NDArray[np.float64]
    """Burst multipliers by age; (hosts, AGE_BINS)."""


class LearnedHosts:
    """The learned part of a shard's hosts."""

    def __init__(self) -> None:
        self.tables = HostTables(np.empty(0), np.empty(0), np.empty((0, AGE_BINS)))
        self._weights: NDArray[np.float64] = np.empty((0, SOURCES))
        self._slots: dict[tuple[int, str], int] = {}
        self._names: set[str] = set()
        """Of sources that have a slot anywhere."""
        self._full: NDArray[np.bool_] = np.empty(0, np.bool_)

    def reserve(self, hosts: int) -> None:
        """Make room for so many hosts; nothing is known of new ones."""
        size = self._full.size
        if hosts <= size:
            return
        more = max(hosts, 2 * size)
        initial = (INITIAL_CHANGE_RATE, _INITIAL_EVIDENCE, 1.0)
        self.tables = HostTables(
            *(
                grown(column, more, np.full((more - size, *column.shape[1:]), value))
                for column, value in zip(self.tables, initial, strict=True)
            )
        )
        self._weights = grown(self._weights, more, np.ones((more - size, SOURCES)))
        self._full = grown(self._full, more, np.zeros(more - size, np.bool_))

    def load(self, numbers: NDArray[np.int32], columns: HostColumns) -> None:
        """Take what a snapshot says of hosts.

        Args:
            numbers: of the hosts here, in the order of the columns.
            columns: of the snapshot.
        """
        kappa = columns.learning.evidence
        self.tables.alpha[numbers] = columns.prior_shape / columns.prior_rate
        self.tables.kappa[numbers] = kappa
        self.tables.multipliers[numbers] = columns.learning.multipliers
        self._weights[numbers] = columns.learning.source_evidence / kappa[:, np.newaxis]
        for number, names in zip(numbers.tolist(), columns.sources, strict=True):
            self._name_sources(number, names)

    def take(self, number: int, message: HostParameters) -> None:
        """Take what was learned of a host."""
        self.tables.alpha[number] = message.unsignalled_change_rate
        self.tables.kappa[number] = message.signal_evidence
        self.tables.multipliers[number] = message.burst_multipliers
        self._weights[number] = np.array(message.source_evidence) / message.signal_evidence
        self._name_sources(number, message.sources)

    def _name_sources(self, number: int, names: Sequence[str]) -> None:
        self._slots |= {(number, name): slot for slot, name in enumerate(names)}
        self._names |= set(names)
        self._full[number] = len(names) >= SOURCES - 1

    def weights_of(self, numbers: NDArray[np.int32], sources: Sequence[str]) -> NDArray[np.float64]:
        """How many usual signals one of a source is worth, at each host.

        A source that the estimator has not met yet counts as usual.
        """
        weights = np.where(self._full[numbers], self._weights[numbers, SOURCES - 1], 1.0)
        if self._names.isdisjoint(sources):
            return weights
        for event, (number, source) in enumerate(zip(numbers.tolist(), sources, strict=True)):
            slot = self._slots.get((number, source))
            if slot is not None:
                weights[event] = self._weights[number, slot]
        return weights

    def weighted(
        self, numbers: NDArray[np.int32], pending: NDArray[np.uint16]
    ) -> NDArray[np.float64]:
        """The counts of signals since the last crawl, from those by source."""
        return np.asarray((self._weights[numbers] * pending).sum(axis=1))


@compiled
def refresh(page: Any, record: Any, hosts: HostTables) -> None:
    """Set the rate that the page has until its next crawl."""
    if np.isnan(record.own_alpha):
        alpha = np.float32(hosts.alpha[page.host])
    else:
        alpha = np.float32(record.own_alpha * record.multiplier)
    if alpha != page.alpha:
        page.alpha = alpha
        page.due_staleness = UNSET


@compiled
def fix_multiplier(page: Any, record: Any, hosts: HostTables) -> None:
    """Choose the multiplier that holds from the page's last crawl to its next."""
    record.multiplier = hosts.multipliers[page.host, age_bin(np.float64(record.change_age))]


@compiled
def refresh_pages(pages: Rows, records: Rows, hosts: HostTables, rows: NDArray[np.int32]) -> None:
    """Bring pages up to date with what was learned of their hosts."""
    for row in rows:
        page, record = pages[row], records[row]
        refresh(page, record, hosts)
        if np.isnan(record.own_alpha) or not page.gamma > 0.0:
            page.kappa = hosts.kappa[page.host]
            page.due_staleness = UNSET


@compiled
def note_first_signal(page: Any, record: Any, hosts: HostTables, time: float) -> None:
    """A page's first signal acts at once: it has a rate before the estimator says which."""
    since = record.updated_at if record.updated_at > NEVER else page.last_crawled_at
    days = max(time - since, 0.0) / SECONDS_PER_DAY if since > NEVER else 0.0
    page.gamma = (1.0 + PSEUDO_SIGNALS) / (days + PSEUDO_DAYS)
    page.kappa = hosts.kappa[page.host]
    page.due_staleness = UNSET
