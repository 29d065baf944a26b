"""The learned state of a run without any fault on the same events, and where the real one differs.

A reference of its own (`services.verify.reference`) applies the records that Postgres says were
made durable together, in the same order and the same company, to the state at the beginning;
nothing is stopped, reloaded or begun again on the way. What it comes to must be what the database
has.

The company matters and is taken from the notes, not chosen: signals and outcomes stand on different
topics, and those of one batch are put in order of time. A crawl that came a batch after a signal
that it was made before is told from one that came with it. How much that makes is told as well: the
same events are applied once more as if all had come in order of time, and but for a few the crawl
records must be the same.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from aiokafka import ConsumerRecord

from services.verify.audit import Transaction
from services.verify.reference import comparing
from services.verify.reference.fitting import learn, refit
from services.verify.reference.rules import Observation, Terms, apply
from services.verify.reference.state import State, read_state
from shared.contracts.layout import Layout
from shared.runtime.settings import Settings

Records = Mapping[tuple[str, int], Sequence[ConsumerRecord]]
"""(topic, partition) → records, rising in offset."""

MOST_OUT_OF_ORDER: Final = 0.05
"""Share of the crawl records that may be other than if all events had come in order of time. Where
signals wait for an ingester that is down, their crawls are applied before them; about two in a
thousand are so in a run of all faults."""


@dataclass(frozen=True, slots=True)
class Relearned:
    """What the events come to."""

    state: State
    observations: list[Observation]
    gaps: list[str]
    """Where a position did not go on from where it stood: records left out, or applied twice."""
    moves: int
    """How often a position moved."""


def relearn(
    settings: Settings,
    layout: Layout,
    beginning_url: str,
    transactions: Sequence[Transaction],
    records: Records,
) -> Relearned:
    """Apply the transactions' records.

    Args:
        settings: of the run.
        layout: in the end.
        beginning_url: a database with the state before the first transaction.
        transactions: in order.
        records: of the topics that the estimator reads.
    """
    offsets = {key: np.array([r.offset for r in part], np.int64) for key, part in records.items()}
    positions: dict[tuple[str, int], int] = {}
    state, observations, gaps, moves = read_state(beginning_url), [], [], 0
    splits: tuple[int, ...] = ()
    at_that_time = _after(layout, ())
    for transaction in transactions:
        if transaction.split:
            at_that_time = _after(layout, splits := (*splits, *transaction.split))
            _move(state, at_that_time)
        batch: dict[int, dict[str, Sequence[ConsumerRecord]]] = {}
        for move in transaction.moves:
            key = (move.topic, move.partition)
            if key not in records:
                continue  # what the estimator wrote itself
            moves += 1
            stood = positions.get(key, 0)
            if move.before != stood:
                gaps.append(f"{move.topic}/{move.partition}: at {stood}, from {move.before}")
            positions[key] = move.after
            begin, end = np.searchsorted(offsets[key], (move.before, move.after))
            if end > begin:
                batch.setdefault(move.partition, {})[move.topic] = records[key][begin:end]
        terms = _terms(settings, at_that_time, transaction.at)
        for shard in sorted(batch):
            effects = apply(state, shard, batch[shard], terms)
            learn(state, effects)
            observations += effects.observations
        if transaction.refitted:
            refit(state, settings.material_change, transaction.refitted)
    return Relearned(state, observations, gaps, moves)


def _after(layout: Layout, splits: Sequence[int]) -> Layout:
    """How hosts were shared out after so many splits of all the growths up to a layout."""
    counts = layout.counts
    for place, (before, after) in enumerate(itertools.pairwise(counts)):
        some, splits = splits[:before], splits[before:]
        if len(some) < before or place == len(counts) - 2:
            return Layout(after, before, frozenset(some), counts[:place])
    return layout


def _move(state: State, layout: Layout) -> None:
    """Hosts are with the shards that have them, and their pages."""
    for host in state.hosts.values():
        host.shard = layout.shard_of(host.name)
    for page in state.pages.values():
        page.shard = layout.shard_of(page.host)


def in_order_of_time(
    settings: Settings, layout: Layout, beginning_url: str, at: float, records: Records
) -> list[Observation]:
    """The crawl records that there would be had all events come in order of time.

    Args:
        settings: of the run.
        beginning_url: see `relearn`.
        at: Unix seconds, after all events.
        records: see `relearn`.
    """
    # As if nothing had been split: what was passed on changes nothing any more.
    state, together = read_state(beginning_url), _after(layout, ())
    terms, observations = _terms(settings, together, at), list[Observation]()
    for shard in range(together.grown_from):
        of_family: dict[str, list[ConsumerRecord]] = {}
        for (topic, number), part in records.items():
            if number % together.grown_from == shard:
                of_family.setdefault(topic, []).extend(part)
        observations += apply(state, shard, of_family, terms).observations
    return observations


def out_of_order(stored: Iterable[Observation], in_order: Sequence[Observation]) -> float:
    """Share of the crawl records in order of time that are not stored so."""
    missing = Counter(in_order) - Counter(stored)
    return missing.total() / max(len(in_order), 1)


def _terms(settings: Settings, layout: Layout, at: float) -> Terms:
    return Terms(
        layout,
        at,
        at + settings.signal_future_tolerance_seconds,
        settings.signal_delay_seconds,
    )


def differences(stored: State, relearned: Relearned) -> tuple[list[str], list[str]]:
    """Pages, and hosts, whose state in the database is not the one that their events come to."""
    return comparing.differences(stored, relearned.state)
