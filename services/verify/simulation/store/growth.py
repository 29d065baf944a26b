"""The functions by which shards grow and are split, on the model.

Whoever splits is a program that waits by itself (`simulation.blocking`): what hangs is tried again
where it stands, and a commit is waited for.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import psycopg

from services.verify.simulation.blocking import Blocking, blocking_here, sleep
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.loop import Hanging
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database, Row, SplitDone
from shared.contracts.identity import shard_of
from shared.contracts.layout import Layout
from shared.store.copies import Copies
from shared.store.deployment import StoreMismatch
from shared.store.growth import NotHeld
from shared.store.moving import SplitCounts
from shared.store.owners import Announcing
from shared.store.positions import ESTIMATOR
from shared.store.splits import Split, SplitState
from shared.store.writer_lock import StoreBusy

P = ParamSpec("P")
T = TypeVar("T")

COPYING_SECONDS: Final = 0.4
"""To copy what moves of a shard takes so long."""

TOUCHING_SECONDS: Final = 0.2
"""To lock a row in each of its blocks."""

_STEPS: Final = 4

_SCHEMA_LOCK: Final = ("schema",)
IMPORTS: Final = ("imports kept out",)


def patient(function: Callable[P, T]) -> Callable[P, T]:
    """A function that waits where it hangs, if a program calls it that waits by itself."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return function(*args, **kwargs)
            except Hanging as hanging:
                here = blocking_here()
                if here is None:
                    raise
                here.sleep(hanging.seconds)

    return call


class BlockingConnection(Connection):
    """A connection of a program that waits by itself."""

    def __init__(self, database: Database, here: Blocking, *, autocommit: bool) -> None:
        super().__init__(database, autocommit=autocommit)
        self._here = here

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As psycopg's: when it is over, it is committed, or nobody knows."""
        with super().transaction():
            yield
        self._here.settle()

    def execute(self, statement: str) -> None:
        """Say something, so that the server does not give us up."""
        if statement == "SELECT":
            self.require()
            if self.mine.is_over:
                raise psycopg.OperationalError("the connection was lost")
            self.mine.begun_at = self.database.loop.now
        else:
            super().execute(statement)


class GrowthStatements:
    """Those of `shared.store.growth` and its neighbours."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _now(self) -> float:
        return BEGINNING + self._database.loop.now

    # Beginning.

    def lock_schema(self, connection: Connection) -> None:
        """As `shared.store.partitions.lock_schema`."""
        self._database.lock(connection.mine, [_SCHEMA_LOCK])

    def note_growth(self, connection: Connection, after: Layout) -> None:
        """As `shared.store.growth._note_growth`."""
        database = self._database

        def write() -> None:
            database.splits = {
                parent: {"state": SplitState.WAITING, "until": 0.0, "split_at": None}
                for parent in range(after.grown_from)
            }
            database.layout = after

        connection.mine.writes.append(write)

    # Agreeing.

    def read_splits(self, connection: Connection, parents: Collection[int]) -> dict[int, Split]:
        """As `shared.store.splits.read_splits`."""
        connection.require()
        splits = self._database.splits
        return {
            parent: Split(
                splits[parent]["state"],
                splits[parent]["until"] > self._now,
                splits[parent]["split_at"],
                self._database.claims.get(parent),
            )
            for parent in sorted(parents)
            if parent in splits
        }

    def without_scheduler(self, connection: Connection, shards: Collection[int]) -> list[int]:
        """As `shared.store.splits.without_scheduler`."""
        connection.require()
        return sorted(set(shards) - self._database.claims.keys())

    def ask(self, connection: Connection, parent: int, seconds: float) -> bool:
        """As `shared.store.splits.ask`."""

        def change(row: Row) -> Row | None:
            if row["state"] is SplitState.SPLIT:
                return None
            return {"state": max(row["state"], SplitState.ASKED), "until": self._now + seconds}

        return self._change(connection, parent, change)

    def hold(self, connection: Connection, parent: int, *, claim: str | None = None) -> bool:
        """As `shared.store.splits.hold`."""
        if claim is not None and self._database.claims.get(parent) != claim:
            return False

        def change(row: Row) -> Row | None:
            is_asked = row["state"] is SplitState.ASKED and row["until"] > self._now
            return {"state": SplitState.HELD} if is_asked else None

        return self._change(connection, parent, change)

    def resume(self, connection: Connection, parent: int) -> bool:
        """As `shared.store.splits.resume`."""

        def change(row: Row) -> Row | None:
            is_open = row["state"] in (SplitState.ASKED, SplitState.HELD)
            is_given_up = is_open and row["until"] <= self._now
            return {"state": SplitState.WAITING} if is_given_up else None

        return self._change(connection, parent, change)

    def _change(
        self, connection: Connection, parent: int, change: Callable[[Row], Row | None]
    ) -> bool:
        """One statement on a row that nobody has locked; whether it has changed anything."""
        connection.require()
        database, key = self._database, _key(parent)
        row = database.splits.get(parent)
        new = None if row is None or database.is_locked(key) else change(row)
        if row is None or new is None:
            return False
        with connection.transaction():
            database.lock(connection.mine, [key])
            connection.mine.writes.append(lambda: self._write(parent, row, new))
        return True

    def _write(self, parent: int, row: Row, new: Row) -> None:
        row.update(new)
        if row["state"] is SplitState.HELD:
            self._database.holdings.begin(parent, self._database.loop.now)
        else:
            self._database.holdings.end(parent, self._database.loop.now)

    def take_over(self, connection: Connection, parents: Collection[int], claim: str) -> None:
        """As `shared.store.splits.take_over`."""
        connection.require()
        database = self._database
        with connection.transaction():
            database.lock(connection.mine, [("claim", parent) for parent in sorted(parents)])
        database.claims |= dict.fromkeys(parents, claim)
        for parent in parents:
            database.holdings.end(parent, database.loop.now)
        held = [n for n in sorted(parents) if self._state(n) is SplitState.HELD]
        if not held:
            return
        with connection.transaction():
            database.lock(connection.mine, [_key(parent) for parent in held])

            def write() -> None:
                for parent in held:
                    if self._state(parent) is SplitState.HELD:
                        database.splits[parent]["state"] = SplitState.ASKED

            connection.mine.writes.append(write)

    def _state(self, parent: int) -> SplitState | None:
        row = self._database.splits.get(parent)
        return None if row is None else row["state"]

    # Splitting.

    def keep_imports_out(self, connection: Connection) -> None:
        """As `shared.store.writer_lock.keep_imports_out`."""
        if self._database.is_importing:
            raise StoreBusy("an import of pages is under way")
        connection.mine.locks.add(IMPORTS)  # There is one command, so nobody to share it with.

    def make_copies(self, connection: Connection, parent: int, shards: Sequence[int]) -> Copies:
        """As `shared.store.copies.make_copies`: it takes its time, and shows nobody anything."""
        _ = parent, shards
        for _ in range(_STEPS):
            connection.execute("SELECT")
            sleep(COPYING_SECONDS / _STEPS)
        return Copies("")

    def touch_blocks(
        self, connection: Connection, parent: int, meanwhile: Callable[[], object]
    ) -> int:
        """As `shared.store.first_touches.touch_blocks`: some transactions, which change nothing."""
        for _ in range(_STEPS):
            with connection.transaction():
                self._database.check()
            meanwhile()
            sleep(TOUCHING_SECONDS / _STEPS)
        return len(self._database.pages.get(parent, {}))

    def require_held(self, connection: Connection, layout: Layout, parent: int) -> None:
        """As `shared.store.growth._require_held`."""
        database = self._database
        database.lock(connection.mine, [_key(parent)])
        row = database.splits.get(parent)
        now = (database.layout.shards, database.layout.grown_from)
        if row is None or now != (layout.shards, layout.grown_from):
            raise StoreMismatch(f"shard {parent} is none that is split from {layout}")
        if row["state"] is not SplitState.HELD or row["until"] <= self._now:
            raise NotHeld(f"shard {parent} is {row['state'].name.lower()}, or was")

    def move_rows(
        self, connection: Connection, layout: Layout, parent: int, copies: Copies
    ) -> SplitCounts:
        """As `shared.store.moving.move_rows`; what is moved is what is there at the commit: nobody
        else can write it."""
        _ = copies
        database, children = self._database, layout.family_of(parent)[1:]
        if any(database.pages.get(child) or database.hosts.get(child) for child in children):
            raise StoreMismatch(f"shards {list(children)} have rows before their parent is split")
        connection.mine.writes.append(lambda: self._move(layout, parent))
        return SplitCounts(0, 0)

    def _move(self, layout: Layout, parent: int) -> None:
        database = self._database
        hosts, pages = database.hosts.get(parent, {}), database.pages.get(parent, {})
        homes = {key: shard_of(row["host"], layout.shards) for key, row in hosts.items()}
        for page_id, row in list(pages.items()):
            shard = homes[row["host_id"]]
            if shard != parent:
                database.pages.setdefault(shard, {})[page_id] = pages.pop(page_id) | {
                    "shard": shard
                }
                # Where it was it is left until `delete_left_urls`.
                database.urls[shard, page_id] = database.urls[parent, page_id]
                if noted := database.unanswered.get(parent, {}).pop(page_id, None):
                    database.unanswered.setdefault(shard, {})[page_id] = noted
        for host_id, shard in homes.items():
            if shard != parent:
                moved = hosts.pop(host_id) | {"shard": shard}
                database.hosts.setdefault(shard, {})[host_id] = moved
        for child in layout.family_of(parent)[1:]:
            for erased in (database.erased_pages, database.erased_hosts):
                erased[child] = dict(erased.get(parent, {}))
            database.classes[child] = dict(database.classes.get(parent, {}))

    def pass_on_announcing(
        self, connection: Connection, parent: int, children: Collection[int]
    ) -> None:
        """As `shared.store.owners.pass_on_announcing`."""
        owners = self._database.owners

        def write() -> None:
            about: Announcing = owners[parent]["announcing"]
            for child in owners.keys() & set(children):
                owners[child]["announcing"] = about

        connection.mine.writes.append(write)

    def note_split(self, connection: Connection, parent: int) -> None:
        """As `shared.store.growth._note_split`."""
        database = self._database

        def write() -> None:
            layout, family = database.layout, database.layout.family_of(parent)
            database.splits[parent] |= {"state": SplitState.SPLIT, "split_at": self._now}
            database.layout = replace(layout, split=layout.split | {parent})
            applied = {
                (topic, number): offset
                for (consumer, topic, number), offset in database.positions.items()
                if consumer == ESTIMATOR and number in family
            }
            database.splits_done.append(SplitDone(frozenset(family), database.layout, applied))

        connection.mine.writes.append(write)

    def delete_left_urls(
        self,
        connection: Connection,
        parent: int,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> int:
        """As `shared.store.left_urls.delete_left_urls`, some of them in a transaction."""
        urls, deleted = self._database.urls, 0
        while left := self._left_urls(parent):
            some = left[: len(left) // 2 + 1]
            with connection.transaction():
                connection.mine.writes.append(partial(_forget, urls, some))
            deleted += len(some)
            meanwhile()
        return deleted

    def _left_urls(self, parent: int) -> list[tuple[int, int]]:
        pages = self._database.pages.get(parent, {})
        return [key for key in self._database.urls if key[0] == parent and key[1] not in pages]

    def tidy(self, connection: Connection, layout: Layout, parent: int) -> None:
        """As `shared.store.moving.tidy`."""
        _ = layout
        self.delete_left_urls(connection, parent)

    def move_observations(
        self,
        database_url: str,
        layout: Layout,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> int:
        """As `shared.store.moving.move_observations`."""
        _ = database_url
        database = self._database
        database.check()
        progress(1, 1)
        homes = {
            (layout.parent_of(shard), page_id): shard
            for shard, pages in database.pages.items()
            for page_id in pages
        }
        moved = [(homes.get((row[0], row[1]), row[0]), *row[1:]) for row in database.observations]
        count = sum(new[0] != old[0] for new, old in zip(moved, database.observations, strict=True))
        database.observations[:] = moved
        return count


def _forget(urls: dict[tuple[int, int], Any], keys: list[tuple[int, int]]) -> None:
    for key in keys:
        urls.pop(key, None)


def _key(parent: int) -> tuple[Any, ...]:
    return ("split", parent)
