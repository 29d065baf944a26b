"""The growth of the number of shards, step by step; whoever begins again goes on where it stopped.

First the database knows of the new shards, then the topics have partitions for them, and then the
shards of before are split, one after the other: what moves of one is copied, and then, once there
are schedulers for the new ones, its own picks nothing of it until it is split; all others go on. In
the end what crawls found follows its pages.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import psycopg

from shared.contracts.databases import Database, Databases
from shared.contracts.layout import Layout
from shared.store.connection import PASSING, connect
from shared.store.deployment import require_this_schema
from shared.store.first_touches import touch_blocks
from shared.store.growth import (
    NotHeld,
    begin_growth,
    note_split_elsewhere,
    require_growth,
    split_shard,
)
from shared.store.layout import fetch_layout, read_layout
from shared.store.left_urls import delete_left_urls
from shared.store.moving import SplitCounts, move_observations, tidy
from shared.store.splits import SplitState, ask, hold, read_splits, without_scheduler
from shared.store.writer_lock import StoreBusy

ASKED_SECONDS: Final = 15.0
"""A command that has not asked again for so long is taken for gone, and the shard is picked on."""

LOOK_SECONDS: Final = 0.2
"""It asks again, and looks whether the shard is held, so often."""

SILENT_SECONDS: Final = 5.0
"""A scheduler that has not stopped by then, once it was asked to, is said to be missing or to wait:
each needs a moment."""

SHOWN_SECONDS: Final = 10.0
"""What a long wait is for is said so often."""

_ROLE: Final = "cli"

Told = Callable[[int, int, str], None]
"""Told how many shards of how many are split, and what is done or waited for."""


def require_can_grow(databases: Databases, shards: int) -> dict[Database, Layout]:
    """Make sure that all databases can have so many shards; nothing is changed.

    Returns:
        how the hosts are shared out in each.

    Raises:
        GrowthRefused: so many shards cannot come next.
        StoreMismatch: one of the databases is of another version.
        psycopg.OperationalError: one of the databases cannot be reached.
    """
    before: dict[Database, Layout] = {}
    for database in databases.each:
        with connect(database.url, _ROLE) as connection:
            require_this_schema(connection)
            before[database] = read_layout(connection)
    for layout in before.values():
        require_growth(layout, shards)
    return before


def prepare(databases: Databases, shards: int) -> Layout:
    """Let the databases grow; what a growth before has left to do is done first.

    Of several databases all are asked before any is changed. Each knows that all shards are to be
    split, and splits its own.

    Returns:
        as of all databases together.

    Raises:
        GrowthRefused: so many shards cannot come next.
        StoreMismatch: one of the databases is of another version.
        psycopg.OperationalError: one of the databases cannot be reached.
    """
    for database, layout in require_can_grow(databases, shards).items():
        if layout.shards not in (shards, layout.grown_from) and not layout.is_growing:
            _delete_left(databases, database, layout)
            move_observations(database.url, layout)
    return databases.layout_of_all(
        {database: begin_growth(database.url, shards) for database in databases.each}
    )


def _own_layouts(databases: Databases, layout: Layout) -> dict[Database, Layout]:
    """Of each database its own, as its shards may have grown in fewer steps, after it was restored
    from a dump of before; of one that is away the one of all."""
    found = dict.fromkeys(databases.each, layout)
    for database in databases.each if databases.are_several else ():
        with contextlib.suppress(*PASSING):
            found[database] = fetch_layout(database.url, _ROLE)
    return found


def let_be_known(layout: Layout, told: Told, seconds: float) -> None:
    """Wait until crawlers and producers know of new partitions, before anything goes there.

    Once a shard is split nobody waits any more: it was waited for before.
    """
    until = time.monotonic() + (0.0 if layout.split else seconds)
    while (left := until - time.monotonic()) > 0:
        told(0, layout.grown_from, f"crawlers learn of the new partitions: {left:.0f} s more")
        time.sleep(min(left, SHOWN_SECONDS))


def split_all(
    databases: Databases,
    layout: Layout,
    told: Told,
    *,
    wait_seconds: float,
    unattended: bool = False,
) -> list[SplitCounts]:
    """Split all shards that are not split yet, each in its database.

    Args:
        databases: by the tables' owner.
        layout: by `prepare`; the topics have partitions for it.
        told: of each step.
        wait_seconds: for each shard, beside its copying; then it is given up.
        unattended: there are no schedulers: a shard whose scheduler has not answered for so long is
            split all the same.

    Returns:
        what went to other shards, of each that was split here, not by another command meanwhile.

    Raises:
        SplitFailed: a shard could not be split in time; those before it are split.
        StoreMismatch: another version has migrated a database meanwhile; the same.
    """
    layouts = _own_layouts(databases, layout)
    splitter = _Splitter(databases, layouts, told, wait_seconds, unattended)
    waiting, counts = splitter.waiting(), list[SplitCounts]()
    while waiting:
        with contextlib.suppress(*PASSING):  # it is told again
            splitter.tell_of_others(databases.home, waiting)
        parent = splitter.first_there(waiting)
        waiting.remove(parent)
        if (done := splitter.split(parent)) is not None:
            counts.append(done)
    for database in databases.each:
        splitter.tell_of_others(database, waiting)
    return counts


class SplitFailed(Exception):
    """A shard could not be split in time; the text says why, and how to go on."""


class _IsSplit(Exception):
    """A shard is split already: by a try that was cut off, or by another command."""


class _Patience:
    """How long a shard is waited for; copying takes as long as it takes."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._asked_at: float | None = None

    def asked_for(self) -> float:
        """The shard is asked for once more; seconds since it was asked for first."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        return time.monotonic() - self._asked_at

    @property
    def is_over(self) -> bool:
        """Whether it has taken too long."""
        return time.monotonic() >= self._until

    def leave_out(self, seconds: float) -> None:
        """Something took so long that does not count."""
        self._until += seconds


class _Splitter:
    """Splits the shards of a growth, one at a time."""

    def __init__(
        self,
        databases: Databases,
        layouts: Mapping[Database, Layout],
        told: Told,
        wait_seconds: float,
        unattended: bool,
    ) -> None:
        self._databases = databases
        self._layouts = layouts
        self._told = told
        self._wait_seconds = wait_seconds
        self._unattended = unattended
        self._shards = layouts[databases.home].shards
        parents = [self._parents_of(database) for database in databases.each]
        self._total = sum(map(len, parents))
        self._done = self._total - len(self.waiting())
        self._holder = f"shards-grow/{os.getpid()}-{secrets.token_hex(4)}"

    def _parents_of(self, database: Database) -> list[int]:
        """The shards of before that a database has."""
        return self._databases.had_by(database, range(self._layouts[database].grown_from))

    def waiting(self) -> list[int]:
        """The shards that are not split yet, each by its own database."""
        return sorted(
            parent
            for database, layout in self._layouts.items()
            for parent in self._parents_of(database)
            if parent not in layout.split
        )

    def tell_of_others(self, database: Database, waiting: Collection[int]) -> None:
        """Let a database know which shards are split that others have. The home says how far a
        growth is, so it is to know soon.

        Args:
            database: is told.
            waiting: shards that are not split yet, each by its own database.
        """
        grown_from, split = self._layouts[database].grown_from, set[int]()
        for other, own in self._layouts.items():
            if other != database:
                # They may have grown in other steps, after one was restored.
                common = min(grown_from, own.grown_from)
                left = {one % common for one in self._databases.had_by(other, waiting)}
                parents = self._databases.had_by(other, range(grown_from))
                split |= {parent for parent in parents if parent % common not in left}
        if split:
            with connect(database.url, _ROLE, autocommit=True) as connection:
                note_split_elsewhere(connection, split)

    def _layout_of(self, parent: int) -> Layout:
        return self._layouts[self._databases.of(parent)]

    def first_there(self, parents: Sequence[int]) -> int:
        """The first shard whose database answers: those of others need not wait for one that is
        away. Where none does it is the first of all, which is waited for."""
        if not self._databases.are_several:
            return parents[0]
        for parents_there in self._databases.shared(parents).values():
            with contextlib.suppress(*PASSING), self._connection(min(parents_there)):
                return min(parents_there)
        return parents[0]

    def split(self, parent: int) -> SplitCounts | None:
        """Split a shard, and tidy up; None: another command has split it.

        Raises:
            SplitFailed: it could not be split in time.
        """
        counts = self._split(parent)
        self._done += 1
        self._tell(f"shard {parent} is split: tidying up")
        # What is not tidied up here is left to `finish`, and to autovacuum.
        with contextlib.suppress(*PASSING), self._connection(parent) as connection:
            tidy(connection, self._layout_of(parent), parent)
        return counts

    def _split(self, parent: int) -> SplitCounts | None:
        """Try again and again until it is done, or has taken too long."""
        was_cut_off = False
        patience = _Patience(self._wait_seconds)
        while True:
            try:
                with (
                    self._connection(parent) as connection,
                    self._connection(parent) as splitting,
                ):
                    return self._split_once(connection, splitting, parent, patience)
            except _IsSplit:
                return SplitCounts(0, 0) if was_cut_off else None
            except (NotHeld, StoreBusy) as error:
                reason = str(error)
            except PASSING as error:
                was_cut_off = True  # perhaps after it had committed
                reason = f"the database is away or busy: {str(error).strip()}"
            if patience.is_over:
                raise self._failed(parent, reason)
            self._tell(reason)
            time.sleep(LOOK_SECONDS)

    def _split_once(
        self,
        connection: psycopg.Connection,
        splitting: psycopg.Connection,
        parent: int,
        patience: _Patience,
    ) -> SplitCounts:
        """Split a shard by a connection of its own, as `connection` asks for it meanwhile.

        Raises:
            _IsSplit: it is already.
        """

        def until_held() -> None:
            # Meanwhile `splitting` says something: the server gives up who does not.
            touch_blocks(connection, parent, lambda: splitting.execute("SELECT"))
            patience.leave_out(time.monotonic() - began)
            while not self._is_held(connection, parent, patience):
                time.sleep(LOOK_SECONDS)
                splitting.execute("SELECT")
            self._tell(f"shard {parent} is being split")

        self._state(connection, parent)
        self._tell(f"shard {parent} is copied")
        began = time.monotonic()
        return split_shard(splitting, self._layout_of(parent), parent, self._holder, until_held)

    def _state(self, connection: psycopg.Connection, parent: int) -> SplitState:
        state = read_splits(connection, [parent])[parent].state
        if state is SplitState.SPLIT:
            raise _IsSplit
        return state

    def _is_held(self, connection: psycopg.Connection, parent: int, patience: _Patience) -> bool:
        """Ask for a shard, once schedulers have what it is split among; whether it is held."""
        silent = (
            f"shard {parent} is not held yet: its scheduler waits for an estimator that is behind, "
            "or no scheduler is running"
        )
        state, is_late = self._state(connection, parent), patience.is_over
        unread = without_scheduler(connection, self._layout_of(parent).family_of(parent)[1:])
        if unread and not (is_late and self._unattended):
            # Nobody would pick what goes there: of a new partition not all members hear at once.
            reason = f"no scheduler has shard {unread[0]} yet, to which pages of {parent} go"
            if is_late:
                raise self._failed(parent, reason)
            self._tell(reason)
            return False
        ask(connection, parent, ASKED_SECONDS)
        is_silent = patience.asked_for() >= SILENT_SECONDS
        if state is SplitState.HELD:
            return True
        if is_late:
            if self._unattended and hold(connection, parent):
                return True
            raise self._failed(parent, silent)
        asked = f"shard {parent} is not held yet: its scheduler is asked to stop for a moment"
        waits = silent if is_silent else asked
        self._tell(waits if state is SplitState.ASKED else f"shard {parent} is asked for")
        return False

    def _connection(self, parent: int) -> psycopg.Connection:
        return connect(self._databases.of(parent).url, _ROLE, autocommit=True)

    def _tell(self, what: str) -> None:
        self._told(self._done, self._total, what)

    def _failed(self, parent: int, reason: str) -> SplitFailed:
        return SplitFailed(
            f"shard {parent} could not be split in {self._wait_seconds:g} s: {reason}\n"
            f"{self._done} of {self._total} shards are split, and everything works; "
            f"`freshet shards grow {self._shards}` goes on with the others"
        )


def finish(databases: Databases, layout: Layout, told: Told) -> int:
    """Delete what splits have left that were cut off, and let what crawls found follow its pages;
    how many of them did."""

    def tell(done: int, total: int) -> None:
        told(done, total, "what crawls found follows its pages")

    layouts = _own_layouts(databases, layout)
    for database, own in layouts.items():
        _delete_left(databases, database, own)
    return sum(move_observations(database.url, own, tell) for database, own in layouts.items())


def _delete_left(databases: Databases, database: Database, layout: Layout) -> None:
    with connect(database.url, _ROLE, autocommit=True) as connection:
        for parent in databases.had_by(database, range(layout.grown_from)):
            delete_left_urls(connection, parent)
