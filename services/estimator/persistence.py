"""A batch's effects and its positions, in one transaction."""

import os
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.types.array import ListBinaryDumper

from services.estimator.application import ShardEffects
from services.estimator.commits import Commit, Offsets
from services.estimator.comparing import count_predictions
from services.estimator.erased_rows import erase
from services.estimator.hosts import quiet_of
from services.estimator.passing import refuses_data
from services.estimator.shard import PAGE
from shared.runtime.databases import held_by
from shared.runtime.settings import Settings
from shared.store import writer
from shared.store.binary import joined_blobs
from shared.store.connection import connect_writer
from shared.store.deployment import check_deployment
from shared.store.history import pack
from shared.store.host_factors import pack_factors
from shared.store.hosts import HostLearning, pack_hosts, pack_sources
from shared.store.learned_pages import LearnedPages, pages_of_host, read_pages
from shared.store.owners import (
    Owner,
    note_announcing,
    raise_epochs,
    read_epochs,
    require_ownership,
)
from shared.store.page_classes import write_classes
from shared.store.positions import (
    ESTIMATOR,
    Positions,
    Superseded,
    advance_positions,
    raise_positions,
    read_positions,
)
from shared.store.source_times import pack_source_times
from shared.store.writer_lock import share_writer_lock

_STORED: Final = (
    "page_id",
    "importance",
    "max_age_days",
    "unsignalled_change_rate",
    "signal_evidence",
    "signal_rate",
    "first_seen_at",
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
    "urgent_at",
    "digest",
    "signal_count",
    "signals",
    "crawls",
    "changes",
    "failures",
    "misses",
    "status",
    "page_class",
)

_HURRY: Final = "SET LOCAL lock_timeout = '200ms'"


class Unacceptable(Exception):
    """Something in a batch cannot be applied or stored, and never will: it must be found."""


class Store:
    """The estimator's connection for writing. But for reading pages, not for several threads at
    once."""

    def __init__(self, settings: Settings) -> None:
        """Make it, not connected yet.

        Args:
            settings: `database_url`, and which `partitions` it has, as shards; `instance` is the
                name of this worker, for people.
        """
        self._database_url = settings.database_url.get_secret_value()
        self._shards, self._held = settings.partitions, held_by(settings)
        self._holder = f"{settings.instance}/{os.getpid()}-{secrets.token_hex(4)}"
        self._connection: psycopg.Connection | None = None
        self._observation_partitions: set[int] = set()
        self._reading = threading.Lock()

    def open(self) -> None:
        """Connect, and keep imports out, which this process would not see.

        Raises:
            psycopg.OperationalError: the server cannot be reached.
            StoreMismatch: the database is not the one of these settings.
            StoreBusy: an import is under way.
        """
        self.close()
        connection = connect_writer(self._database_url, "estimator")
        try:
            check_deployment(connection, self._shards, self._held)
            share_writer_lock(connection)
            # As text, every name is quoted by regular expressions.
            connection.adapters.register_dumper(list, ListBinaryDumper)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        # It may be another server than before, promoted without the last thing that was done.
        self._observation_partitions = set()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that works, as far as is known."""
        return self._connection is not None and not self._connection.broken

    def close(self) -> None:
        """Disconnect; what was not committed is gone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def own(self, shard: int, *, hurried: bool = False) -> int:
        """Take a shard over from whoever writes it, before it is read.

        Args:
            shard: which.
            hurried: others wait meanwhile: a lock is waited for only a moment.

        Returns:
            the epoch of our ownership.

        Raises:
            psycopg.errors.LockNotAvailable: somebody holds the shard locked.
            psycopg.OperationalError: the server went away.
        """
        connection = self._connected
        with connection.transaction():
            if hurried:
                connection.execute(_HURRY)
            return raise_epochs(connection, [shard], self._holder)[shard]

    def positions(self, shards: Iterable[int]) -> Positions:
        """How far shards are applied; of those that cannot be loaded yet.

        Raises:
            psycopg.OperationalError: the server went away.
        """
        connection = self._connected
        with connection.transaction():
            return read_positions(connection, ESTIMATOR, shards)

    def lost(self, owned: Mapping[int, int]) -> dict[int, str]:
        """Which shards another process has taken over, and its name.

        Args:
            owned: shard → the epoch in which this process owns it.

        Raises:
            psycopg.OperationalError: the server went away.
        """
        connection = self._connected
        with connection.transaction():
            found = read_epochs(connection, owned)
        theirs = {shard: found.get(shard, (0, "nobody")) for shard in owned}
        return {
            shard: holder
            for shard, (epoch, holder) in theirs.items()
            if (epoch, holder) != (owned[shard], self._holder)
        }

    def commit_ours(self, batch: Commit, *, partly: bool) -> frozenset[int]:
        """Make a batch durable, as `commit` does, but for shards that others have taken over.

        Args:
            batch: what there is.
            partly: whether it may be without some shards.

        Returns:
            the shards of which nothing is stored.
        """
        try:
            self.commit(batch)
        except Superseded as error:
            lost = error.shards
            if not partly or not lost or lost >= batch.owned.keys():
                raise
        else:
            return frozenset()
        self.commit(batch.without(lost))
        return lost

    def commit(self, batch: Commit) -> None:
        """Make a batch durable: all of it or nothing.

        Raises:
            psycopg.errors.LockNotAvailable: somebody holds something of it locked.
            Superseded: the database has moved on without this process.
            Unacceptable: the database refuses something of it; nothing is stored.
            psycopg.OperationalError: the server went away; whether it committed is not known.
        """
        connection, done = self._connected, batch.done
        if any(part.learned.size for part in done):
            self._ensure_observation_partition(connection, batch.recorded_at)
        try:
            with connection.transaction():
                # First, and before any lock: a client that is frozen in the middle of a COPY is
                # never given up by the server.
                found = _append(connection, done, batch.recorded_at)
                if batch.hurried:
                    connection.execute(_HURRY)
                require_ownership(connection, batch.owned, self._holder)
                advance_positions(connection, ESTIMATOR, batch.before, batch.after)
                note_announcing(connection, batch.announcing)
                _write(connection, done)
        except Exception as error:
            if refuses_data(error):
                raise Unacceptable(f"the database refuses it: {error}") from error
            raise
        if found is not None:
            count_predictions(found)

    def read_pages(
        self,
        shard: int,
        epoch: int,
        page_ids: NDArray[np.int64],
        directories: NDArray[np.uint16] | None = None,
    ) -> LearnedPages:
        """As `shared.store.learned_pages`; by this connection, as its server has all commits."""
        with self._reading:
            owner = Owner(epoch, self._holder)
            return read_pages(self._connected, shard, owner, page_ids, directories)

    def pages_of_host(self, shard: int, epoch: int, host_id: int) -> NDArray[np.int64]:
        """As `shared.store.learned_pages`."""
        with self._reading:
            return pages_of_host(self._connected, shard, Owner(epoch, self._holder), host_id)

    def note_announced(self, ends: Offsets) -> None:
        """Note how far announcements reach: whoever loads a shard need not read them.

        What is announced was durable before, whoever owns the shard by now; and if the server
        forgets it, some are read twice.

        Args:
            ends: offsets after the last message of `page-parameters` and `host-parameters`.

        Raises:
            psycopg.errors.LockNotAvailable: somebody holds some of the positions locked.
            psycopg.OperationalError: the server went away.
        """
        connection = self._connected
        with connection.transaction():
            connection.execute(_HURRY)
            connection.execute("SET LOCAL synchronous_commit = off")
            raise_positions(connection, ESTIMATOR, ends)

    @property
    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            raise psycopg.OperationalError("not connected")
        return self._connection

    def _ensure_observation_partition(
        self, connection: psycopg.Connection, recorded_at: float
    ) -> None:
        number = int(recorded_at // writer.SECONDS_PER_PARTITION)
        if number not in self._observation_partitions:
            writer.ensure_observation_partition(connection, recorded_at)
            self._observation_partitions.add(number)


def _append(
    connection: psycopg.Connection, done: Sequence[ShardEffects], recorded_at: float
) -> writer.Observations | None:
    if not any(part.observations.page_ids.size for part in done):
        return None
    joined = writer.Observations(
        *(
            np.concatenate([getattr(part.observations, field.name) for part in done])
            for field in fields(writer.Observations)
        )
    )
    writer.append_observations(connection, joined, recorded_at)
    return joined


def _write(connection: psycopg.Connection, done: Sequence[ShardEffects]) -> None:
    if any(part.hosts for part in done):
        writer.write_hosts(connection, _hosts(done))
    for part in done:
        if classes := part.shard.classes.take_new():
            write_classes(connection, part.shard.number, classes)
    if any(part.added.size for part in done):
        urls = [url for part in done for url in part.added_urls]
        writer.insert_pages(connection, _pages([(p, p.added) for p in done]), urls)
    counted = sum(part.counted_hosts.size for part in done)
    if counted and writer.update_hosts(connection, _estimates(done)) != counted:
        raise Superseded("hosts of this process are no longer in the store")
    if any(part.factored.size for part in done):
        writer.update_factors(connection, _factors(done))
    touched = sum(part.touched.size for part in done)
    if touched:
        written = writer.update_pages(connection, _pages([(p, p.touched) for p in done]))
        if written != touched:
            raise Superseded(f"{touched - written} of {touched} pages are no longer in the store")
    erase(connection, [part for part in done if part.erased.size or part.erased_hosts])


def _pages(
    chosen: Iterable[tuple[ShardEffects, NDArray[np.int64]]],
) -> dict[str, writer.Column]:
    """The columns of some rows of each shard."""
    parts = [(part.shard, rows) for part, rows in chosen if rows.size]
    # Joining them costs more than the reading, for the sake of types that might differ.
    records = np.empty(sum(rows.size for _, rows in parts), PAGE)
    begin = 0
    for shard, rows in parts:
        np.take(shard.pages, rows, out=records[begin : begin + rows.size])
        begin += rows.size
    columns: dict[str, writer.Column] = {name: records[name] for name in _STORED}
    columns["shard"] = np.concatenate(
        [np.full(rows.size, shard.number, np.int16) for shard, rows in parts]
    )
    columns["host_id"] = np.concatenate(
        [shard.hosts.records["host_id"][shard.pages["host"][rows]] for shard, rows in parts]
    )
    columns["history"] = joined_blobs([pack(shard.rings, rows) for shard, rows in parts])
    columns["signal_times"] = joined_blobs(
        [
            pack_source_times(shard.by_source.ages, shard.pages["several"][rows])
            for shard, rows in parts
        ]
    )
    return columns


def _hosts(done: Sequence[ShardEffects]) -> writer.HostLimits:
    parts = [part for part in done if part.hosts]
    records = np.concatenate([part.shard.hosts.records[part.hosts] for part in parts])
    return writer.HostLimits(
        shards=np.concatenate(
            [np.full(len(part.hosts), part.shard.number, np.int16) for part in parts]
        ),
        host_ids=np.ascontiguousarray(records["host_id"]),
        hosts=[part.shard.hosts.names[row] for part in parts for row in part.hosts],
        rules=records,
        limit_updated_at=np.ascontiguousarray(records["limit_updated_at"]),
    )


def _estimates(done: Sequence[ShardEffects]) -> writer.HostEstimates:
    parts = [(part.shard, part.counted_hosts) for part in done if part.counted_hosts.size]
    records = np.concatenate([shard.hosts.records[rows] for shard, rows in parts])
    taken = [shard.hosts.learning.take(rows) for shard, rows in parts]
    learning = HostLearning(*map(np.concatenate, zip(*taken, strict=True)))
    return writer.HostEstimates(
        shards=np.concatenate(
            [np.full(rows.size, shard.number, np.int16) for shard, rows in parts]
        ),
        host_ids=records["host_id"],
        prior_shape=records["prior_shape"],
        prior_rate=records["prior_rate"],
        prior_precision=-np.expm1(-learning.evidence),
        sources=[
            _packed_sources(tuple(shard.hosts.sources[row]))
            for shard, rows in parts
            for row in rows.tolist()
        ],
        learning=pack_hosts(learning),
        quiet=quiet_of(records),
    )


def _factors(done: Sequence[ShardEffects]) -> writer.RefittedFactors:
    parts = [(part.shard, part.factored) for part in done if part.factored.size]
    return writer.RefittedFactors(
        np.concatenate([np.full(rows.size, shard.number, np.int16) for shard, rows in parts]),
        np.concatenate([shard.hosts.records["host_id"][rows] for shard, rows in parts]),
        [pack_factors(shard.hosts.factors[row]) for shard, rows in parts for row in rows.tolist()],
    )


@lru_cache(maxsize=1 << 16)
def _packed_sources(names: tuple[str, ...]) -> str:
    """Few hosts have sources that no other has, and every batch writes hundreds of hosts."""
    return pack_sources(names)
