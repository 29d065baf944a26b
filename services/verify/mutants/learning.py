"""Faults of the estimator: what it commits, reads again, learns and announces."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import psycopg
from aiokafka import ConsumerRecord

from services.estimator import decoding, handler, host_events, persistence, processing, writing
from services.estimator.announcing import Outbox
from services.estimator.application import ShardEffects, apply_records
from services.estimator.commits import Commit
from services.estimator.decoding import Events, Reader, Updates
from services.estimator.handler import EstimatorHandler
from services.estimator.learning import learn
from services.estimator.persistence import Store, Unacceptable
from services.verify.mutants.mutant import Planted, Promise, breaks, does_nothing
from services.verify.simulation.plan import Kind
from services.verify.simulation.replacing import instead
from shared.contracts.codec import decode_many
from shared.contracts.topics import CRAWL_OUTCOMES

_COMMITS: Final[tuple[Kind, ...]] = ("kill-in-commit", "cut-database", "database-down")

_store: Any = persistence
"""What it has of `shared.store` is the model's while a simulation runs."""


@breaks(Promise.LOST, "kill-in-commit", estimators=1)
def positions_before_effects() -> Planted:
    """The positions are committed by themselves, and then the effects."""

    def commit(self: Store, batch: Commit) -> None:
        connection: Any = self._connected
        with connection.transaction():
            _store.require_ownership(connection, batch.owned, self._holder)
            _store.advance_positions(connection, _store.ESTIMATOR, batch.before, batch.after)
        with connection.transaction():
            writing.append_observations(connection, batch.done, batch.recorded_at)
            _store.note_announcing(connection, batch.announcing)
            writing.write_rows(connection, batch.done)

    return instead(Store, "commit", commit)


@breaks(Promise.LOST, "overtaken")
@contextmanager
def fence_left_out() -> Iterator[None]:
    """An estimator neither notices nor is told that its shard is another's."""
    with (
        instead(persistence, "require_ownership", does_nothing),
        instead(Store, "lost", lambda *_: {}),
    ):
        yield


@breaks(Promise.LOST, "kill", "term")
def read_on_one_record_later() -> Planted:
    """A shard that is loaded is read from one outcome behind its position on."""
    assigned = EstimatorHandler.assigned

    async def later(self: EstimatorHandler, partitions: set[int]) -> Any:
        positions = await assigned(self, partitions)
        return {
            (topic, shard): offset + (topic == CRAWL_OUTCOMES.name)
            for (topic, shard), offset in positions.items()
        }

    return instead(EstimatorHandler, "assigned", later)


@breaks(Promise.LOST, "cut-database", "database-down")
def not_loaded_again_after_a_failure() -> Planted:
    """A batch that failed is applied again to shards that have its effects already."""
    note_failure = EstimatorHandler._note_failure  # noqa: SLF001

    def noted(self: EstimatorHandler, state: Any) -> None:
        note_failure(self, state)
        self._stale.clear()

    return instead(EstimatorHandler, "_note_failure", noted)


@breaks(Promise.AWAY, "database-down", "long-database-outage")
@contextmanager
def batch_dropped_while_the_database_is_away() -> Iterator[None]:
    """A batch that cannot be done, as the database is away, is left out."""
    settle = EstimatorHandler._settle  # noqa: SLF001

    async def settle_or_leave(self: EstimatorHandler, *given: Any) -> None:
        with suppress(psycopg.OperationalError):
            await settle(self, *given)

    with (
        instead(handler, "passes_at_once", lambda _error: False),
        instead(EstimatorHandler, "_settle", settle_or_leave),
    ):
        yield


@breaks(Promise.AWAY, "database-down", "long-database-outage")
def connection_not_made_again() -> Planted:
    """A connection that was lost is taken for one that works."""
    is_there = property(lambda self: self._connection is not None)
    return instead(Store, "is_open", is_there)


@breaks(Promise.TWICE, *_COMMITS, estimators=1)
def crawl_records_in_a_transaction_of_their_own() -> Planted:
    """Crawl records are committed first, and then what they go with."""

    def commit(self: Store, batch: Commit) -> None:
        connection: Any = self._connected
        with connection.transaction():
            writing.append_observations(connection, batch.done, batch.recorded_at)
        with connection.transaction():
            _store.require_ownership(connection, batch.owned, self._holder)
            _store.advance_positions(connection, _store.ESTIMATOR, batch.before, batch.after)
            _store.note_announcing(connection, batch.announcing)
            writing.write_rows(connection, batch.done)

    return instead(Store, "commit", commit)


def _arrivals(records: Sequence[ConsumerRecord]) -> Any:
    return np.array([record.timestamp / 1000 for record in records], np.float64)


@breaks(Promise.TWICE, "duplicate")
def crawls_by_arrival() -> Planted:
    """A crawl is known by when its outcome came, and not by when it was made."""
    return _by_arrival("outcomes")


@breaks(Promise.TWICE, "duplicate")
def signals_by_arrival() -> Planted:
    """A signal is known by when it came, and not by when it was observed."""
    return _by_arrival("signals")


@breaks(Promise.TWICE, "duplicate")
def updates_by_arrival() -> Planted:
    """An update is known by when it came: an old one that comes again undoes a newer one."""
    updates = Reader.updates

    def by_arrival(self: Reader, records: Sequence[ConsumerRecord]) -> Updates:
        found = updates(self, records)
        latest = max((record.timestamp / 1000 for record in records), default=0.0)
        found.times = np.full(found.times.size, latest)
        return found

    return instead(Reader, "updates", by_arrival)


@breaks(Promise.TWICE)
def signal_of_before_the_crawl_counts() -> Planted:
    """A signal that is older than the page's last crawl counts for the next one."""

    def apply(shard: Any, topics: Any, acceptance: Any, _delay: float) -> ShardEffects:
        return apply_records(shard, topics, acceptance, -math.inf)

    return instead(processing, "apply_records", apply)


@breaks(Promise.BEST)
def learned_from_the_first_crawl_alone() -> Planted:
    """What is learned of a page is never learned anew."""

    def learn_once(done: ShardEffects) -> None:
        seen = done.shard.rings.seen[done.learned]
        learn(replace(done, learned=done.learned[seen == 1]))

    return instead(processing, "learn", learn_once)


@breaks(Promise.BAD, "bad-message")
def letter_dropped() -> Planted:
    """A message that the estimator cannot take is left out, and nobody is told."""

    async def leave_out(*_: Any) -> None:
        return

    return instead(Outbox, "put_aside", leave_out)


@breaks(Promise.BAD, "bad-message")
def all_refused_for_one() -> Planted:
    """One message that cannot be read has all of its batch refused."""
    decoded = Reader._decoded  # noqa: SLF001

    def all_or_none(self: Reader, kind: Any, records: Sequence[ConsumerRecord]) -> Any:
        if not decode_many(kind, [record.value for record in records])[1]:
            return decoded(self, kind, records)
        for record in records:
            self._refuse(record, "one of them is bad")
        return [], []

    return instead(Reader, "_decoded", all_or_none)


@breaks(Promise.BAD, "bad-message")
@contextmanager
def bad_message_tried_for_ever() -> Iterator[None]:
    """A batch with a message that cannot be read fails as a whole, and is tried again."""

    def decode_or_fail(kind: Any, values: Sequence[bytes | None]) -> Any:
        messages, bad = decode_many(kind, values)
        if bad:
            raise ValueError("one of them is bad")
        return messages, bad

    async def fail(*_: Any) -> None:
        raise Unacceptable("it fails")

    with instead(decoding, "decode_many", decode_or_fail), instead(handler, "isolate", fail):
        yield


def _by_arrival(kind: str) -> Planted:
    """Events of a kind, each at the time at which it came."""
    read = getattr(Reader, kind)

    def by_arrival(self: Reader, *given: Any) -> Events:
        events: Events = read(self, *given)
        events.times = _arrivals(events.records)
        return events

    return instead(Reader, kind, by_arrival)


@breaks(Promise.HOSTS)
def addresses_unlearned() -> Planted:
    """An estimator leaves out what outcomes say of the addresses of hosts."""
    return instead(host_events, "goes_over", lambda *_: False)
