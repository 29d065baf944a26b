"""The learned state of a run without any fault on the same events, and where the real one differs.

The estimator's own pure code applies the records that Postgres says were made durable together, in
the same order and the same company, to the state at the beginning; nothing is stopped, reloaded or
begun again on the way. What it comes to must be what the database has.

The company matters and is taken from the notes, not chosen: signals and outcomes stand on different
topics, and those of one batch are put in order of time. Sums over pages and hosts may be added up
in another order after a restart, hence the tolerance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.estimator.application import apply_records
from services.estimator.learning import learn
from services.estimator.refitting import refit
from services.estimator.shard import Shard
from services.verify.audit import Transaction
from shared.runtime.acceptance import Acceptance
from shared.runtime.settings import Settings
from shared.store.history import DEPTH
from shared.store.snapshot import load_for_learning
from shared.store.writer import Observations

TOLERANCE: Final = 1e-9
SINGLE_TOLERANCE: Final = 1e-6
"""Of what is stored in single precision."""

_COMPARED: Final = (
    *("importance", "max_age_days", "unsignalled_change_rate", "signal_evidence", "signal_rate"),
    *("first_seen_at", "last_crawled_at", "last_attempt_at", "last_changed_at", "last_signal_at"),
    *("updated_at", "digest", "signal_count", "signals", "crawls", "changes", "failures", "status"),
)
_COMPARED_RINGS: Final = ("pending", "totals", "evidence", "posterior_shape", "multiplier")

Records = Mapping[tuple[str, int], Sequence[ConsumerRecord]]
"""(topic, partition) → records, rising in offset."""


@dataclass(frozen=True, slots=True)
class Relearned:
    """What the events come to."""

    shards: list[Shard]
    observations: list[Observations]
    gaps: list[str]
    """Where a position did not go on from where it stood: records left out, or applied twice."""


def relearn(
    settings: Settings,
    beginning_url: str,
    transactions: Sequence[Transaction],
    records: Records,
) -> Relearned:
    """Apply the transactions' records.

    Args:
        settings: of the run.
        beginning_url: a database with the state before the first transaction.
        transactions: in order.
        records: of the topics that the estimator reads.
    """
    shards = {
        number: Shard.load(load_for_learning(beginning_url, number))
        for number in range(settings.partitions)
    }
    offsets = {key: np.array([r.offset for r in part], np.int64) for key, part in records.items()}
    positions: dict[tuple[str, int], int] = {}
    done = Relearned([shards[n] for n in sorted(shards)], [], [])
    for transaction in transactions:
        batch: dict[int, dict[str, Sequence[ConsumerRecord]]] = {}
        for move in transaction.moves:
            key = (move.topic, move.partition)
            if key not in records:
                continue  # what the estimator wrote itself
            stood = positions.get(key, 0)
            if move.before != stood:
                done.gaps.append(f"{move.topic}/{move.partition}: at {stood}, from {move.before}")
            positions[key] = move.after
            begin, end = np.searchsorted(offsets[key], (move.before, move.after))
            if end > begin:
                batch.setdefault(move.partition, {})[move.topic] = records[key][begin:end]
        _apply(settings, shards, transaction, batch, done)
    return done


def _apply(
    settings: Settings,
    shards: Mapping[int, Shard],
    transaction: Transaction,
    batch: Mapping[int, Mapping[str, Sequence[ConsumerRecord]]],
    done: Relearned,
) -> None:
    latest = transaction.at + settings.signal_future_tolerance_seconds
    acceptance = Acceptance(settings.partitions, transaction.at, latest, record_times_count=True)
    delay = settings.signal_delay_seconds
    effects = [apply_records(shards[n], batch[n], acceptance, delay) for n in sorted(batch)]
    for effect in effects:
        learn(effect)
        if effect.observations.page_ids.size:
            done.observations.append(effect.observations)
    if transaction.refitted:
        refit(done.shards, settings.material_change)


def differences(database_url: str, relearned: Relearned) -> list[str]:
    """Pages whose state in the database is not the one that their events come to."""
    found: list[str] = []
    for mine in relearned.shards:
        theirs = Shard.load(load_for_learning(database_url, mine.number))
        rows = theirs.rows_of(mine.pages["page_id"].copy())
        if len(theirs.pages) != len(mine.pages) or (rows < 0).any():
            found.append(f"shard {mine.number}: {len(theirs.pages)} pages, not {len(mine.pages)}")
            continue
        for name in _COMPARED:
            found += _compared(mine, name, mine.pages[name], theirs.pages[name][rows], TOLERANCE)
        count = len(mine.pages)
        for name in _COMPARED_RINGS:
            expected = getattr(mine.rings, name)[:count]
            actual = getattr(theirs.rings, name)[rows]
            found += _compared(mine, name, expected, actual, SINGLE_TOLERANCE)
        expected, actual = _last_record(mine, np.arange(count)), _last_record(theirs, rows)
        found += _compared(mine, "last interval", expected, actual, SINGLE_TOLERANCE)
    return found


def _last_record(shard: Shard, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The interval of each page's newest crawl record; 0 where there is none."""
    seen = shard.rings.seen[rows]
    slots = np.maximum(seen - 1, 0) % DEPTH
    return np.where(seen > 0, shard.rings.interval_days[rows, slots], np.float32(0.0))


def _compared(
    shard: Shard, name: str, expected: NDArray[np.generic], actual: NDArray[np.generic], by: float
) -> list[str]:
    same = np.isclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=by, atol=0.0, equal_nan=True
    )
    rows = np.flatnonzero(~same.reshape(len(expected), -1).all(axis=1))
    return [
        f"page {shard.pages['page_id'][row]} (shard {shard.number}): {name} is "
        f"{actual[row].tolist()}, its events come to {expected[row].tolist()}"
        for row in rows.tolist()
    ]
