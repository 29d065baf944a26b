"""What is done with a batch in a thread: apply it, learn from it, and refit priors where due."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import psycopg
import structlog

from services.estimator import metrics
from services.estimator.application import Records, ShardEffects, apply_records
from services.estimator.learning import News, learn, material_news
from services.estimator.naming import named_pages
from services.estimator.ordering import ShardRecords
from services.estimator.persistence import Unacceptable
from services.estimator.reading import READERS
from services.estimator.refitting import Refitting, merged
from services.estimator.shard import Found, Shard
from shared.runtime.acceptance import Acceptance
from shared.runtime.ahead import ahead
from shared.runtime.settings import Settings
from shared.store.history import BadHistory
from shared.store.page_parts import DamagedStore
from shared.store.positions import Superseded

log = structlog.get_logger(__name__)

_NOT_THE_BATCH: Final = (MemoryError, psycopg.Error, DamagedStore, BadHistory, Superseded)
"""Failures that no message is to blame for: pages of the batch could not be read."""


class Processed(NamedTuple):
    """What came of a batch."""

    done: list[ShardEffects]
    news: dict[int, News]
    """By shard."""
    refit_seconds: float


def process(
    shards: Mapping[int, Shard],
    records: ShardRecords,
    acceptance: Acceptance,
    settings: Settings,
    refitting: Refitting | None,
) -> Processed:
    """Apply a batch to the shards in memory.

    Args:
        shards: all of this process.
        records: of the batch.
        acceptance: of its messages.
        settings: of the process.
        refitting: refits all shards; None: not now.

    Raises:
        Unacceptable: it fails, and would fail again.
        Superseded: pages were to be read of a shard that is another owner's by now.
        psycopg.OperationalError: the server went away while pages were read.
    """
    try:
        return _process(shards, records, acceptance, settings, refitting)
    except _NOT_THE_BATCH:
        raise
    except Exception as error:
        log.exception("a batch cannot be applied")
        raise Unacceptable(f"it cannot be applied: {error}") from error


def _applied(
    shards: Mapping[int, Shard],
    records: ShardRecords,
    acceptance: Acceptance,
    signal_delay_seconds: float,
) -> list[ShardEffects]:
    """Apply records and learn from them, shard by shard; the next pages are read meanwhile."""
    done, spent = [], dict.fromkeys(("read", "apply", "learn"), 0.0)
    away = [number for number in records if not shards[number].is_whole]
    reads = [partial(_read, shards[number], records[number]) for number in away]
    with ahead(reads, READERS) as reading:
        for number, topics in records.items():
            shard = shards[number]
            with _timed(spent, "read"):
                found = None if shard.is_whole else next(reading)
            with _timed(spent, "apply"):
                if found is not None:
                    shard.take_read(found)
                done.append(apply_records(shard, topics, acceptance, signal_delay_seconds))
            with _timed(spent, "learn"):
                learn(done[-1])
    for part, seconds in spent.items():
        metrics.WORK_SECONDS.labels(part).observe(seconds)
    return done


@contextmanager
def _timed(spent: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    spent[part] += time.perf_counter() - started


def _read(shard: Shard, topics: Records) -> Found | None:
    return shard.read(named_pages(topics))


def _process(
    shards: Mapping[int, Shard],
    records: ShardRecords,
    acceptance: Acceptance,
    settings: Settings,
    refitting: Refitting | None,
) -> Processed:
    before = sum(shard.read_count for shard in shards.values())
    done = _applied(shards, records, acceptance, settings.signal_delay_seconds)
    started = time.perf_counter()
    if refitting is not None:
        with metrics.WORK_SECONDS.labels("refit").time():
            ordered = [shards[number] for number in sorted(shards)]
            refitted = refitting(ordered, settings.material_change)
            done = merged({part.shard.number: part for part in done}, ordered, refitted)
    spent = time.perf_counter() - started
    material, now = settings.material_change, acceptance.now
    news = {part.shard.number: material_news(part, material, now) for part in done}
    metrics.FITTED.inc(sum(part.learned.size for part in done))
    metrics.READ.inc(sum(shard.read_count for shard in shards.values()) - before)
    return Processed(done, news, spent)
