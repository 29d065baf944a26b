"""What the estimator has learned of hosts, and what that makes of their pages.

A page without a crawl record takes α and κ̄ from its host, α times what its directory and its
signals say (`host_factors`). The rate α of one that has its own is multiplied by the host's burst
multiplier for the page's age, fixed at each crawl until the next; of a page that never changed it
is the host's as it is now, which has the belief in quiet pages in it. A signal counts by the weight
of its source at the host, κ_k/κ̄, so that κ̄ times the count is the evidence of all sources.
"""

import math
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.host_factors import Factors, FactorTables, factor_of
from services.scheduler.state.packing import (
    has_own_rate,
    is_unchanged,
    set_multiplier,
    set_own_rate,
    updated_at,
)
from services.scheduler.state.rows import NEVER, UNSET, Rows
from shared.contracts.messages import HostParameters
from shared.policy.compiled import compiled
from shared.policy.estimation.bursts import AGE_BINS, age_bin
from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_PRECISION
from shared.policy.estimation.quiet_pages import NEVER_CHANGED, believed_mean, believed_multipliers
from shared.policy.estimation.smoothed import PSEUDO_DAYS, PSEUDO_SIGNALS
from shared.store.columns import HostColumns
from shared.store.history import OWN_SOURCES, SOURCES
from shared.store.prefetch import AHEAD, prefetch
from shared.store.reserved import grown
from shared.units import SECONDS_PER_DAY

__all__ = [
    "CrawlTables",
    "HostTables",
    "LearnedHosts",
    "fix_multiplier",
    "note_first_signal",
    "rate_by_host",
    "refresh_pages",
    "set_rate",
]

_SMALLEST: Final = 64
"""Hosts that there is room for from the beginning."""

_NO_SLOT_YET: Final = -1

_INITIAL_EVIDENCE: Final = -math.log1p(-INITIAL_PRECISION)

_HEAVIEST: Final = float(np.finfo(np.float32).max)


def _weights(
    of_sources: NDArray[np.float64], of_any: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """What signals of each source are worth, beside one of whatever source; never infinite."""
    return np.minimum(of_sources / of_any, _HEAVIEST)


class HostTables(NamedTuple):
    """What the rows of pages are computed from, a row a host."""

    alpha: NDArray[np.float32]
    """Prior mean of α, per day; (hosts,)."""
    kappa: NDArray[np.float32]
    """κ̄; (hosts,)."""
    multipliers: NDArray[np.float64]
    """Burst multipliers by age; (hosts, AGE_BINS)."""
    weights: NDArray[np.float32]
    """How many usual signals one of a source is worth; (hosts, SOURCES). 1 where no source has the
    slot yet, as far as the estimator has said."""
    factors: FactorTables


class CrawlTables(NamedTuple):
    """What of `HostTables` a crawl is about."""

    multipliers: NDArray[np.float64]
    weights: NDArray[np.float32]


@compiled
def _find_slots(
    own: NDArray[np.int32], numbers: NDArray[np.int32], ids: NDArray[np.int32]
) -> NDArray[np.int8]:
    """The slots of sources at hosts; 0 where a page is not known.

    Args:
        own: by host, the sources that have a slot of their own; 0: nobody has it yet.
        numbers: of the hosts; -1: the page is not known.
        ids: of the sources; 0: it has no slot anywhere.

    Returns:
        (events,); `_NO_SLOT_YET` where the host still has a slot for a source that it has not met.
    """
    slots = np.zeros(numbers.size, np.int8)
    for event in range(numbers.size):
        if numbers[event] < 0:
            continue
        named = own[numbers[event]]
        slot = OWN_SOURCES if named[OWN_SOURCES - 1] != 0 else _NO_SLOT_YET
        if ids[event] != 0:
            for place in range(OWN_SOURCES):
                if named[place] == ids[event]:
                    slot = place
                    break
        slots[event] = slot
    return slots


class LearnedHosts:
    """The learned part of a shard's hosts."""

    def __init__(self) -> None:
        self._factors = Factors(_SMALLEST)
        self._columns = (
            np.zeros(_SMALLEST, np.float32),
            np.zeros(_SMALLEST, np.float32),
            np.zeros((_SMALLEST, AGE_BINS)),
            np.zeros((_SMALLEST, SOURCES), np.float32),
        )
        self._own: NDArray[np.int32] = np.zeros((_SMALLEST, OWN_SOURCES), np.int32)
        """By host: the sources that have a slot of their own; 0: nobody has it yet."""
        self._ids: dict[str, int] = {}
        """Of the sources that have a slot anywhere, from 1 on."""

    @property
    def tables(self) -> HostTables:
        """What the rows of pages are computed from; it writes through."""
        return HostTables(*self._columns, self._factors.tables)

    def add(self, number: int, count: int = 1) -> None:
        """Make room for a host, or for several that follow it; nothing is known of them."""
        size, end = len(self._own), number + count
        if end > size:
            more = max(end, 2 * size)
            alpha, kappa, multipliers, weights = (grown(column, more) for column in self._columns)
            self._columns = alpha, kappa, multipliers, weights
            self._own = grown(self._own, more)
            self._factors.grow(more)
        self._factors.clear(slice(number, end))
        alpha, kappa, multipliers, weights = self._columns
        alpha[number:end] = INITIAL_CHANGE_RATE
        kappa[number:end] = _INITIAL_EVIDENCE
        multipliers[number:end] = 1.0
        weights[number:end] = 1.0

    def forget(self, number: int) -> None:
        """Nothing is known of a host any more."""
        self._own[number] = 0
        self.add(number)

    def load(self, columns: HostColumns) -> None:
        """Take what a snapshot says of hosts, whose numbers here are their places there."""
        numbers = np.arange(len(columns.sources), dtype=np.int32)
        kappa = columns.learning.evidence
        with np.errstate(over="ignore"):
            self.tables.alpha[numbers] = believed_mean(
                columns.prior_shape, columns.prior_rate, columns.quiet.belief
            )
            self.tables.kappa[numbers] = kappa
            self.tables.multipliers[numbers] = believed_multipliers(
                columns.learning.multipliers, columns.quiet.belief
            )
        weights = _weights(columns.learning.source_evidence, kappa[:, np.newaxis])
        for number, factors in zip(numbers.tolist(), columns.factors, strict=True):
            if factors.is_known:
                self._factors.set(number, *factors)
        for number, names in zip(numbers.tolist(), columns.sources, strict=True):
            if names:
                self._own[number, : len(names)] = [self._id_of(name) for name in names]
        named = np.array([len(names) for names in columns.sources], np.int64)
        self._weigh(numbers, named, weights)

    def take(self, numbers: Sequence[int], messages: Sequence[HostParameters]) -> None:
        """Take what was learned of hosts, at least one; of one that comes twice the last stands."""
        evidence = np.array([m.signal_evidence for m in messages])
        with np.errstate(over="ignore"):
            self.tables.alpha[numbers] = [m.unsignalled_change_rate for m in messages]
            self.tables.kappa[numbers] = evidence
            self.tables.multipliers[numbers] = [m.burst_multipliers for m in messages]
        of_sources = np.array([m.source_evidence for m in messages])
        named = np.array([len(m.sources) for m in messages])
        for number, message in zip(numbers, messages, strict=True):
            self._factors.set(
                number, message.activity_factors, message.directories, message.directory_factors
            )
            self._name_sources(number, [self._id_of(name) for name in message.sources])
        self._weigh(np.array(numbers), named, _weights(of_sources, evidence[:, np.newaxis]))

    def _weigh(
        self,
        numbers: NDArray[Any],
        named: NDArray[np.int64],
        weights: NDArray[np.floating[Any]],
    ) -> None:
        """Set what signals are worth, of hosts of which the estimator has named so many sources."""
        is_full = named >= OWN_SOURCES
        is_known = (np.arange(SOURCES) < named[:, np.newaxis]) | is_full[:, np.newaxis]
        self.tables.weights[numbers] = np.where(is_known, weights, 1.0)

    def _name_sources(self, number: int, given: list[int]) -> None:
        """The estimator says which sources have a slot of their own: that is how it is.

        Sources that it has not met yet keep the slots that they were given here, which are those
        that it will give them: both go by the order of the same signals.
        """
        own: list[int] = self._own[number].tolist()  # of so few, numpy would take ten times as long
        here, others = own[: len(given)], own[len(given) :]
        is_other = any(a not in (b, 0) for a, b in zip(here, given, strict=True))
        if is_other or not set(given).isdisjoint(others):
            others = [0] * len(others)
        self._own[number] = given + others

    def slots_of(self, numbers: NDArray[np.int32], sources: Sequence[str]) -> NDArray[np.int8]:
        """The slots of sources at hosts; a new one gets the next that is free.

        The first few sources of a host have a slot of their own; all others share the last.

        Args:
            numbers: of the hosts; -1: the page is not known, and its source gets no slot.
            sources: their names.
        """
        slots = _find_slots(self._own, numbers, self._ids_of(sources))
        for event in np.flatnonzero(slots == _NO_SLOT_YET).tolist():
            slots[event] = self._slot_or_new(numbers[event], sources[event])
        return slots

    def _ids_of(self, sources: Sequence[str]) -> NDArray[np.int32]:
        """Ids of sources; 0 where one has no slot anywhere."""
        if sources and sources.count(sources[0]) == len(sources):  # as most batches are
            return np.full(len(sources), self._ids.get(sources[0], 0), np.int32)
        return np.fromiter(map(self._ids.get, sources, repeat(0)), np.int32, len(sources))

    def _slot_or_new(self, number: int, source: str) -> int:
        own: list[int] = self._own[number].tolist()
        known = self._ids.get(source)
        if known in own:
            return own.index(known)  # it was new twice
        if 0 not in own:
            return OWN_SOURCES
        slot = own.index(0)
        self._own[number, slot] = self._id_of(source)
        return slot

    def _id_of(self, source: str) -> int:
        return self._ids.setdefault(source, len(self._ids) + 1)

    def weighted(
        self, numbers: NDArray[np.int32], pending: NDArray[np.uint16]
    ) -> NDArray[np.float64]:
        """The counts of signals since the last crawl, from those by source."""
        return np.asarray((self.tables.weights[numbers] * pending).sum(axis=1))


@compiled
def rate_by_host(page: Any, record: Any, hosts: HostTables) -> float:
    """α of a page that has none of its own."""
    rate: float = hosts.alpha[page.host] * factor_of(record, page.host, hosts.factors)
    return rate


@compiled
def set_rate(page: Any, record: Any, hosts: HostTables, alpha: float) -> None:
    """Set what was learned of a page's rate; NaN: its host's holds."""
    before = page.alpha
    set_own_rate(page, record, alpha)
    if not has_own_rate(record):
        page.alpha = rate_by_host(page, record, hosts)
    if page.alpha != before:
        page.due_staleness = UNSET


@compiled
def fix_multiplier(page: Any, record: Any, hosts: CrawlTables, days_since_change: float) -> None:
    """Choose the multiplier that holds from the page's last crawl to its next."""
    if set_multiplier(page, record, hosts.multipliers[page.host, age_bin(days_since_change)]):
        page.due_staleness = UNSET


@compiled
def refresh_pages(
    pages: Rows, records: Rows, hosts: HostTables, rows: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Bring pages up to date with what was learned of their hosts; rows of those it matters to."""
    # The arrays by name, and `factor_of` only where a host has any: to pass tables costs ten times
    # as much as all the rest.
    alphas, kappas, multipliers = hosts.alpha, hosts.kappa, hosts.multipliers
    activity, counts = hosts.factors.activity, hosts.factors.counts
    moved = np.empty(rows.size, np.int32)
    count = 0
    for place in range(rows.size):
        if place + AHEAD < rows.size:
            soon = pages[rows[place + AHEAD]].host
            prefetch(alphas, soon)
            prefetch(kappas, soon)
            prefetch(activity, soon)
            prefetch(counts, soon)
        row = rows[place]
        page, record = pages[row], records[row]
        alpha, kappa, host = page.alpha, page.kappa, page.host
        is_own = has_own_rate(record)
        if not is_own and counts[host] > 0:
            page.alpha = alphas[host] * factor_of(record, host, hosts.factors)
        elif not is_own:
            page.alpha = alphas[host] * activity[host, record.activity]
        elif is_unchanged(record):
            set_multiplier(page, record, multipliers[host, NEVER_CHANGED])
        if not is_own or not page.gamma > 0.0:
            page.kappa = kappas[host]
        has_signals = page.gamma > 0.0 or page.signals > 0
        if page.alpha != alpha or (has_signals and page.kappa != kappa):
            page.due_staleness = UNSET
            moved[count] = row
            count += 1
    return moved[:count]


@compiled
def note_first_signal(page: Any, record: Any, kappa: NDArray[np.float32], time: float) -> None:
    """A page's first signal acts at once: it has a rate before the estimator says which.

    Args:
        page: it has had none.
        record: of the same page.
        kappa: κ̄ of the hosts.
        time: of the signal.
    """
    since = updated_at(record)
    if since == NEVER:
        since = page.last_crawled_at
    days = max(time - since, 0.0) / SECONDS_PER_DAY if since > NEVER else 0.0
    page.gamma = (1.0 + PSEUDO_SIGNALS) / (days + PSEUDO_DAYS)
    page.kappa = kappa[page.host]
    page.due_staleness = UNSET
