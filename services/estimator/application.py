"""A batch's records of one shard, applied to its pages and hosts in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.estimator import effects
from services.estimator.columns import UPSERT, EventColumns, UpdateColumns, Verdicts
from services.estimator.counting import count_events, count_verdicts
from services.estimator.decoding import Events, Misplaced, Reader, Refused, Updates, joined
from services.estimator.erasing import (
    ErasedAgain,
    ErasedHost,
    erased_again,
    erased_hosts,
    erased_rows,
    with_whole_hosts,
)
from services.estimator.host_events import (
    apply_limits,
    hosts_of_outcomes,
    note_groups,
    note_hosts,
    page_of,
    which_are_late,
)
from services.estimator.settling import each_once
from services.estimator.shard import Shard
from shared.contracts.identity import PageIdentity
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.policy.estimation.page_factors import activity_bins
from shared.rules.page_events import SIGNAL
from shared.runtime.acceptance import Acceptance
from shared.store.page_status import NEVER
from shared.store.writer import Observations

Records = Mapping[str, Sequence[ConsumerRecord]]
"""Topic (without prefix) → records of one partition, in order of offset."""

_HEARD: Final = (effects.APPLIED, effects.NOT_COUNTED)
"""Verdicts on signals that are counted among all of their page."""

_CHANGED: Final = (*_HEARD, effects.OBSERVED)


@dataclass(frozen=True, slots=True)
class ShardEffects:
    """What a batch did to a shard; the shard itself has it already."""

    shard: Shard
    touched: NDArray[np.int64]
    """Rows of known pages that stay and whose state changed, in rising order of page id."""
    added: NDArray[np.int64]
    """Rows of new pages, in rising order of page id."""
    added_urls: list[str]
    learned: NDArray[np.int64]
    """Rows, known or new, with new crawl records, or with old ones and another prior."""
    observations: Observations
    hosts: list[int]
    """Rows of hosts that are new or whose limits changed, in rising order of host id."""
    counted_hosts: NDArray[np.int64]
    """Rows of hosts of whose pages something was learned, in rising order of host id."""
    factored: NDArray[np.int64]
    """Rows of those with other factors of their pages, in rising order of host id."""
    new_sources: set[int]
    """Rows of hosts that have heard of a new source."""
    regrouped: set[int]
    """Rows of hosts that are of another group now, as outcomes say."""
    refused: list[Refused]
    misplaced: list[Misplaced] = field(default_factory=list)
    """What is passed on to other shards."""
    erased: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of pages, known or new, that are not kept, in rising order of page id."""
    erased_hosts: list[ErasedHost] = field(default_factory=list)
    erased_again: ErasedAgain = field(default_factory=ErasedAgain.nothing)

    @property
    def erases(self) -> bool:
        """Whether anything is erased."""
        return self.erased.size > 0 or bool(self.erased_hosts or self.erased_again)

    @classmethod
    def nothing(cls, shard: Shard) -> Self:
        """No effect."""
        none = np.empty(0, np.int64)
        nobody: set[int] = set()
        observations = Observations.none()
        return cls(shard, none, none, [], none, observations, [], none, none, nobody, nobody, [])


@dataclass(frozen=True, slots=True)
class Taken:
    """What signals and outcomes did to a shard; the shard itself has it already."""

    results: Verdicts
    touched: NDArray[np.int64]
    """Rows of pages whose state changed."""
    learned: NDArray[np.int64]
    """Rows of pages with new crawl records, and of those with old ones whose prior is another."""
    hosts: NDArray[np.int64]
    """Rows of hosts of whose pages something was learned."""


def _is_one_of(verdicts: NDArray[np.uint8], wanted: Sequence[int]) -> NDArray[np.bool_]:
    """As `numpy.isin`, whose preparations cost more than a small batch."""
    table = np.zeros(256, np.bool_)
    table[list(wanted)] = True
    found: NDArray[np.bool_] = table[verdicts]
    return found


def take_events(shard: Shard, events: EventColumns, signal_delay_seconds: float) -> Taken:
    """Apply signals and outcomes, in rising order of time; at the same moment, signals first."""
    results = effects.apply_events(
        shard.pages,
        shard.rings,
        shard.by_source,
        shard.hosts.tables,
        events,
        signal_delay_seconds,
    )
    rows, verdicts = events.rows, results.verdicts
    active = _more_active(shard, rows[_is_one_of(verdicts, _HEARD) & (events.kinds == SIGNAL)])
    observed = verdicts == effects.OBSERVED
    shard.records += int(observed.sum())
    changed = _is_one_of(verdicts, _CHANGED)
    counted = observed | (changed & (events.kinds == SIGNAL))
    return Taken(
        results,
        each_once(rows[changed]),
        each_once(np.concatenate([rows[observed], active])),
        each_once(shard.pages["host"][rows[counted]]),
    )


def _more_active(shard: Shard, signalled: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pages that signals have made more active; their factors are exact again.

    Args:
        shard: theirs.
        signalled: the row of the page of each signal that is new.

    Returns:
        rows of those with crawl records, which are to be fitted anew.
    """
    if not signalled.size:
        return signalled
    rows, new = np.unique(signalled, return_counts=True)
    counts = shard.pages["signal_count"][rows]
    moved = rows[activity_bins(counts) != activity_bins(counts - new)]
    shard.pages["factor"][moved] = shard.hosts.factors_of(shard.pages[moved])
    return np.asarray(moved[shard.rings.seen[moved] > 0])


def apply_records(
    shard: Shard, records: Records, acceptance: Acceptance, signal_delay_seconds: float
) -> ShardEffects:
    """Decode a shard's records and apply them: limits, updates, then signals and outcomes in
    order of time.

    Bad records change nothing and are in the result with the reason, and so are those that are
    another shard's.
    """
    reader = Reader(shard.number, shard.layout, acceptance, shard.classes, shard.hosts.has_twin)
    known_hosts = len(shard.hosts.names)
    hosts = apply_limits(shard, reader, records.get(HOST_LIMITS.name, ()))
    updates = reader.updates(records.get(PAGE_UPDATES.name, ()))
    new_pages, new_rows = _add_new_pages(shard, updates)
    again = erased_again(shard, updates)
    updated, erased = _apply_updates(shard, updates, signal_delay_seconds)
    new_sources: set[int] = set()

    def slots_of(page_ids: NDArray[np.int64], sources: Sequence[str]) -> NDArray[np.int8]:
        slots, new = shard.hosts.slots(_hosts_of(shard, page_ids), sources)
        new_sources.update(new)
        return slots

    events = joined(
        reader.signals(records.get(PAGE_SIGNALS.name, ()), slots_of),
        reader.outcomes(records.get(CRAWL_OUTCOMES.name, ()), shard.rows_of),
    )
    rows = shard.rows_of(events.page_ids)
    columns = EventColumns(rows, events.times, events.kinds, events.digests, events.slots)
    late = which_are_late(shard, rows, events)
    taken = take_events(shard, columns, signal_delay_seconds)
    results = taken.results
    count_events(events.kinds, results.verdicts)
    of_hosts = hosts_of_outcomes(shard, rows, events)
    regrouped = note_groups(shard, of_hosts, events)
    hosts |= note_hosts(shard, of_hosts, events, late) | regrouped
    hosts |= set(range(known_hosts, len(shard.hosts.names)))
    touched = each_once(np.concatenate([updated, taken.touched]))
    urls = {page.page_id: page.url for page in new_pages}
    added = by_page_id(shard, new_rows)
    apart = np.concatenate([added, erased])
    return ShardEffects(
        shard=shard,
        touched=by_page_id(shard, np.setdiff1d(touched, apart) if apart.size else touched),
        added=added,
        added_urls=[urls[int(page_id)] for page_id in shard.pages["page_id"][added]],
        learned=taken.learned,
        observations=_observations(shard, rows, events, results),
        hosts=by_host_id(shard, np.array(sorted(hosts), np.int64)).tolist(),
        counted_hosts=by_host_id(
            shard, each_once(np.array([*taken.hosts.tolist(), *hosts, *new_sources], np.int64))
        ),
        factored=np.empty(0, np.int64),
        new_sources=new_sources,
        regrouped=regrouped,
        refused=reader.refused + _unknown_pages(shard, events, results),
        misplaced=reader.misplaced,
        erased=by_page_id(shard, erased),
        erased_hosts=erased_hosts(shard, updates, erased),
        erased_again=again,
    )


def forget_erased(done: Sequence[ShardEffects]) -> set[int]:
    """Forget the pages that batches have erased, once that is durable.

    Returns:
        shards that have lost a host, which memory still has.
    """
    for part in done:
        if part.erased.size:
            part.shard.forget(part.erased)
    return {part.shard.number for part in done if part.erased_hosts}


def by_page_id(shard: Shard, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of pages in rising order of page id."""
    return rows[np.argsort(shard.pages["page_id"][rows])]


def by_host_id(shard: Shard, rows: NDArray[Any]) -> NDArray[np.int64]:
    """Rows of hosts in rising order of host id."""
    whole = rows.astype(np.int64)
    if whole.size < 2:
        return whole
    return whole[np.argsort(shard.hosts.records["host_id"][whole])]


def _hosts_of(shard: Shard, page_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the pages' hosts; −1 where the page is unknown."""
    rows = shard.rows_of(page_ids)
    hosts = np.full(rows.size, -1, np.int64)
    hosts[rows >= 0] = shard.pages["host"][rows[rows >= 0]]
    return hosts


def _add_new_pages(shard: Shard, updates: Updates) -> tuple[list[PageIdentity], NDArray[np.int64]]:
    """Add the pages that an upsert names for the first time; and their rows."""
    none = np.empty(0, np.int64)
    if not updates.pages:
        return [], none
    known = shard.rows_of(np.array([page.page_id for page in updates.pages])) >= 0
    new: dict[int, tuple[PageIdentity, float]] = {}
    for event in np.flatnonzero(~known & (updates.operations == UPSERT)):
        page, time = updates.pages[event], float(updates.times[event])
        if shard.removals.of(page) <= time:
            new.setdefault(page.page_id, (page, time))
    rows = shard.add_pages(list(new.values())) if new else none
    return [page for page, _ in new.values()], rows


def _apply_updates(
    shard: Shard, updates: Updates, signal_delay_seconds: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Apply updates; the rows that changed, and those of them that are erased."""
    if not updates.pages:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    columns = with_whole_hosts(
        shard,
        updates,
        UpdateColumns(
            shard.rows_of(np.array([page.page_id for page in updates.pages], np.int64)),
            updates.times,
            updates.operations,
            updates.importance,
            updates.max_age_days,
            updates.crawled_at,
            updates.urgent,
            updates.page_class,
        ),
    )
    verdicts = effects.apply_updates(
        shard.pages, shard.rings, shard.by_source, columns, signal_delay_seconds
    )
    count_verdicts("update", verdicts)
    is_applied = _is_one_of(verdicts, (effects.APPLIED, effects.RETURNED))
    return columns.rows[is_applied], erased_rows(shard, columns, is_applied)


def _observations(
    shard: Shard, rows: NDArray[np.int64], events: Events, results: Verdicts
) -> Observations:
    observed = np.flatnonzero(results.verdicts == effects.OBSERVED)
    if not observed.size:
        return Observations.none()
    return Observations(
        shards=np.full(observed.size, shard.number, np.int16),
        page_ids=shard.pages["page_id"][rows[observed]],
        crawled_at=events.times[observed],
        interval_days=results.interval_days[observed],
        signals=results.signals[observed],
        changed=results.changed[observed],
        staleness=results.staleness[observed],
        fresh_days=results.fresh_days[observed],
        sources=results.sources[observed],
    )


def _unknown_pages(shard: Shard, events: Events, results: Verdicts) -> list[Refused]:
    """Outcomes of unknown pages; signals of unknown pages are everyday, and only counted, and so
    are crawls of pages that were erased meanwhile."""
    unknown = (results.verdicts == effects.UNKNOWN_PAGE) & (events.kinds != SIGNAL)
    return [
        Refused(events.records[event], "unknown page: add it by page-updates first")
        for event in np.flatnonzero(unknown).tolist()
        if shard.removals.of(page_of(events, event)) == NEVER
    ]
