"""A batch's effects and its positions, in one transaction."""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.types.array import ListBinaryDumper

from services.estimator.commits import Commit, Offsets
from services.estimator.comparing import count_predictions
from services.estimator.passing import refuses_data
from services.estimator.reading import PageReaders
from services.estimator.writing import append_observations, write_rows
from shared.runtime.databases import held_by
from shared.runtime.settings import Settings
from shared.store import writer
from shared.store.connection import connect_writer
from shared.store.deployment import check_deployment
from shared.store.learned_pages import LearnedPages
from shared.store.owners import (
    Owner,
    note_announcing,
    raise_epochs,
    read_epochs,
    require_ownership,
)
from shared.store.positions import (
    ESTIMATOR,
    Positions,
    Superseded,
    advance_positions,
    raise_positions,
    read_positions,
)
from shared.store.writer_lock import share_writer_lock

_HURRY: Final = "SET LOCAL lock_timeout = '200ms'"


class Unacceptable(Exception):
    """Something in a batch cannot be applied or stored, and never will: it must be found."""


class Store:
    """The estimator's connections: one for writing, and some that read pages beside it.

    Not for several threads at once, but for reading pages and for taking shards.
    """

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
        self._taking = Lock()
        """Of several threads that take shards, one has the connection."""
        self._readers = PageReaders(self._database_url)
        self._observation_partitions: set[int] = set()

    def open(self) -> None:
        """Connect, and keep imports out, which this process would not see.

        Raises:
            psycopg.OperationalError: the server cannot be reached, or just became another one.
            StoreMismatch: the database is not the one of these settings.
            StoreBusy: an import is under way.
        """
        self.close()
        connection = self._connection = connect_writer(self._database_url, "estimator")
        try:
            check_deployment(connection, self._shards, self._held)
            share_writer_lock(connection)
            # As text, every name is quoted by regular expressions.
            connection.adapters.register_dumper(list, ListBinaryDumper)
            self._readers.open(connection)
        except BaseException:
            self.close()
            raise
        # It may be another server than before, promoted without the last thing that was done.
        self._observation_partitions = set()

    @property
    def is_open(self) -> bool:
        """Whether all connections work, as far as is known."""
        connection = self._connection
        return connection is not None and not connection.broken and self._readers.are_open

    def close(self) -> None:
        """Disconnect; what was not committed is gone."""
        self._readers.close()
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
        with self._taking, self._writing() as connection, connection.transaction():
            if hurried:
                connection.execute(_HURRY)
            return raise_epochs(connection, [shard], self._holder)[shard]

    def positions(self, shards: Iterable[int]) -> Positions:
        """How far shards are applied; of those that cannot be loaded yet.

        Raises:
            psycopg.OperationalError: the server went away.
        """
        with self._taking, self._connected.transaction():
            return read_positions(self._connected, ESTIMATOR, shards)

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
        done = batch.done
        with self._writing() as connection:
            if any(part.learned.size for part in done):
                self._ensure_observation_partition(connection, batch.recorded_at)
            try:
                with connection.transaction():
                    # First, and before any lock: a client that is frozen in the middle of a COPY is
                    # never given up by the server.
                    found = append_observations(connection, done, batch.recorded_at)
                    if batch.hurried:
                        connection.execute(_HURRY)
                    require_ownership(connection, batch.owned, self._holder)
                    advance_positions(connection, ESTIMATOR, batch.before, batch.after)
                    note_announcing(connection, batch.announcing)
                    write_rows(connection, done)
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
        """As `shared.store.learned_pages`; beside what is read and written of other shards."""
        return self._readers.read_pages(shard, Owner(epoch, self._holder), page_ids, directories)

    def pages_of_host(self, shard: int, epoch: int, host_id: int) -> NDArray[np.int64]:
        """As `shared.store.learned_pages`."""
        return self._readers.pages_of_host(shard, Owner(epoch, self._holder), host_id)

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
        with self._writing() as connection, connection.transaction():
            connection.execute(_HURRY)
            connection.execute("SET LOCAL synchronous_commit = off")
            raise_positions(connection, ESTIMATOR, ends)

    @property
    def _connected(self) -> psycopg.Connection:
        if self._connection is None:
            raise psycopg.OperationalError("not connected")
        return self._connection

    @contextmanager
    def _writing(self) -> Iterator[psycopg.Connection]:
        """The connection, which is given up where it leads to a server that takes no writes."""
        connection = self._connected
        try:
            yield connection
        except ReadOnlySqlTransaction:
            connection.close()
            self._connection = None
            raise

    def _ensure_observation_partition(
        self, connection: psycopg.Connection, recorded_at: float
    ) -> None:
        number = int(recorded_at // writer.SECONDS_PER_PARTITION)
        if number not in self._observation_partitions:
            writer.ensure_observation_partition(connection, recorded_at)
            self._observation_partitions.add(number)
