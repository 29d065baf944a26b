"""Shards in several databases: those of one do not wait for another.

Each database has a lane: a handler of its own, with the shards that are there, its connection, and
one thing at a time that it does. A batch is handed to the lanes that are idle. Who has not done its
part after a while goes on with it alone: the consumer is told that these shards could not be done,
and hands their records over again later. What has come through meanwhile is left out then, as it
always is (`ordering.not_applied`).

A lane whose database is away, or is not that of the settings (it has no tables while it is
restored), is tried again whenever it is handed something, and is not waited for. One that hangs
while its shards go to another process is given up, as if its process had been killed: it may still
commit what it had at hand until the next owner takes the shards.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog

from services.estimator import metrics
from services.estimator.announcing import Announcer
from services.estimator.handler import EstimatorHandler
from services.estimator.passing import AWAY, passes_without_database, reason
from shared.contracts.databases import Database
from shared.runtime.batches import Batch, Positions
from shared.runtime.clock import Clock
from shared.runtime.databases import at_database, databases_of
from shared.runtime.retrying import Attempts, until_it_passes
from shared.runtime.settings import Settings
from shared.runtime.tracing import Tracing
from shared.store.deployment import StoreMismatch

log = structlog.get_logger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS: Final = 3.0
"""A lane that was well so far is waited for so long, by the others too."""

SILENT_SECONDS: Final = 10.0
"""What is under way for longer than that, without a sign of life, is said to be in trouble."""

STOP_SECONDS: Final = 3.0
"""What is under way when the worker stops gets so long to end."""

_AWAY: Final = (*AWAY, StoreMismatch)


class Ending(asyncio.Event):
    """Set by itself, or because the worker stops."""

    def __init__(self, stopping: asyncio.Event) -> None:
        super().__init__()
        self._stopping = stopping

    def is_set(self) -> bool:
        """Whether nothing is begun again."""
        return super().is_set() or self._stopping.is_set()


class LaneHandler(EstimatorHandler):
    """Raises where its database is away: `handle` and `assigned` may be called again then."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        announcer: Announcer,
        ending: Ending,
        tracing: Tracing | None,
        report: Callable[[], None],
    ) -> None:
        """Make it, not connected yet.

        Args:
            settings: `database_url` is that of the lane.
            clock: of the process.
            announcer: of the process.
            ending: of this handler.
            tracing: of the process.
            report: tells the metrics of all lanes.
        """
        super().__init__(settings, clock, announcer, ending, tracing)
        self.ending = ending
        self._report = report

    @property
    def pages(self) -> int:
        """How many its shards have."""
        return sum(len(shard.pages) for shard in self._shards.values())

    @property
    def stuck(self) -> int:
        """How many of its shards somebody holds locked."""
        return len(self._stuck)

    @property
    def loaded(self) -> set[int]:
        """Its shards, also those that are loaded with their first records."""
        return self._shards.keys() | self._stale

    def load_later(self, shards: set[int], committed: Positions) -> None:
        """Have shards loaded with their first records, if nothing is lost of what was committed."""
        self._stale |= shards
        self._positions |= committed

    def _attempts(self, may_pass: Callable[[BaseException], bool] | None = None) -> Attempts:  # noqa: ARG002
        return until_it_passes(self._stopping, passes_without_database, self._note_failure)

    def _what_is_stuck(self) -> str | None:
        found = super()._what_is_stuck()
        self._report()
        return found

    def _report_size(self) -> None:
        self._report()


class Lane:
    """What is done with the shards of one database."""

    def __init__(self, database: Database, make: Callable[[], LaneHandler]) -> None:
        self.database = database
        self._make = make
        self.handler = make()
        self.shards: set[int] = set()
        """Those that are this process's, loaded or not."""
        self._away: str | None = None
        self.refused: StoreMismatch | None = None  # Why it is not the database of the settings.
        self._work: asyncio.Task[Any] | None = None
        self._began_at = time.monotonic()
        self._ends: set[asyncio.Task[None]] = set()  # Of handlers that were given up.

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return self._work is not None and not self._work.done()

    @property
    def is_away(self) -> bool:
        """Whether the database was not there when it was needed last."""
        return self._away is not None

    @property
    def trouble(self) -> str | None:
        """Why nothing goes on; None: all is well, or there are no shards of this database."""
        if not self.shards:
            return None
        if self._away is not None:
            return f"the database of the shards {self.database.held} is away: {self._away}"
        if self.is_busy and time.monotonic() > self.progressed_at + SILENT_SECONDS:
            return f"the database of the shards {self.database.held} has not answered for a while"
        return self.handler.trouble

    @property
    def progressed_at(self) -> float:
        """Wall time of the last sign of life."""
        return max(self._began_at, self.handler.progressed_at)

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T | None]":
        """Do something beside everything else; None comes of it where the database is away.

        Raises:
            Exception: what was done before has failed, and waiting does not help.
        """
        try:
            self._raise_failure()
        except BaseException:
            work.close()
            raise
        self._began_at = time.monotonic()
        self._work = task = asyncio.ensure_future(self._done(work))
        return task

    def committed(self) -> Positions:
        """How far its shards are known to be applied and durable."""
        return self.handler.committed()

    async def until_idle(self, seconds: float | None) -> None:
        """Wait until nothing is under way, at most for so long; None: for ever."""
        if self._work is not None and self.is_busy:
            await asyncio.wait([self._work], timeout=seconds)

    async def load(self, shards: set[int]) -> Positions | None:
        """Load shards; the positions that they reflect. None: they could not be."""
        self.shards |= shards
        while self.is_busy and not self.is_away:
            await self.until_idle(None)
        if self.is_busy:
            return None
        handler = self.handler
        # Whoever waits may be told to stop; what a thread does goes on.
        found = await asyncio.shield(self.begin(self._load(handler, shards)))
        return found if handler is self.handler else None

    async def let_go(self, shards: set[int]) -> None:
        """Forget shards. Who hangs meanwhile is given up, and a new handler has the others."""
        self.shards -= shards
        await self.until_idle(PATIENCE_SECONDS)
        if self.is_busy:
            self._give_up()
        await self.handler.revoked(shards)

    def _give_up(self) -> None:
        log.warning("a database hangs: its lane is given up", shards=self.database.held)
        given_up, work = self.handler, self._work
        self.handler, self._work = self._make(), None
        self.handler.load_later(given_up.loaded & self.shards, given_up.committed())
        given_up.ending.set()

        async def see_the_end() -> None:
            if work is not None:
                # Whatever it ends with: its shards are the new handler's.
                await asyncio.gather(work, return_exceptions=True)
            await given_up.close()

        end = asyncio.ensure_future(see_the_end())
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    async def close(self) -> None:
        """Disconnect; what is under way gets a while to end."""
        await self.until_idle(STOP_SECONDS)
        if not self.is_busy:
            await self.handler.close()

    async def _load(self, handler: LaneHandler, shards: set[int]) -> Positions:
        found: dict[tuple[str, int], int] = {}
        # One by one: those that go elsewhere meanwhile need not be loaded any more.
        for number in sorted(shards):
            if number in self.shards:
                found |= await handler.assigned({number})
        return found

    async def _done(self, work: Coroutine[Any, Any, T]) -> T | None:
        try:
            found = await work
        except _AWAY as error:
            why = reason(error)
            if self._away is None:
                log.warning("a database is away", shards=self.database.held, reason=why)
            self._away = why
            self.refused = error if isinstance(error, StoreMismatch) else None
            metrics.RETRIES.inc()
            return None
        if self._away is not None:
            log.info("a database is back", shards=self.database.held)
        self._away = self.refused = None
        return found

    def _raise_failure(self) -> None:
        if self._work is not None and self._work.done() and not self._work.cancelled():
            self._work.result()


class Lanes:
    """The shards of this process, by database (see `shared.runtime.consumer.BatchHandler`)."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        announcer: Announcer,
        stopping: asyncio.Event,
        tracing: Tracing | None = None,
    ) -> None:
        self._databases = databases_of(settings)
        self._absent: set[int] = set()

        def lane(database: Database) -> Lane:
            def make() -> LaneHandler:
                ending, there = Ending(stopping), at_database(settings, database)
                return LaneHandler(there, clock, announcer, ending, tracing, self._report)

            return Lane(database, make)

        self.each = [lane(database) for database in self._databases.each]
        """The home's first."""

    @property
    def trouble(self) -> str | None:
        """Why some shards do not go on; None: all is well."""
        return next((lane.trouble for lane in self.each if lane.trouble is not None), None)

    @property
    def progressed_at(self) -> float:
        """Wall time of the last sign of life of any lane."""
        return max(lane.progressed_at for lane in self.each)

    @property
    def are_all_busy(self) -> bool:
        """Whether no lane is free for what is read. That one database hangs is none of the
        process's faults; that all do, may be."""
        return all(lane.is_busy for lane in self.each if lane.shards)

    def absent(self) -> set[int]:
        """Those shards last assigned that could not be loaded: their database is away."""
        return set(self._absent)

    def committed_by(self, database: Database) -> Callable[[], Positions]:
        """Asks how far the shards of a database are known to be applied and durable."""
        return next(lane.committed for lane in self.each if lane.database == database)

    async def open(self) -> None:
        """Connect; who is away is not waited for.

        Raises:
            StoreMismatch: none of the databases is that of these settings.
        """
        opened = [lane.begin(lane.handler.open()) for lane in self.each]
        done, _ = await asyncio.wait(opened, timeout=PATIENCE_SECONDS)
        for task in done:
            task.result()
        if all(refused := [lane.refused for lane in self.each]):
            raise StoreMismatch(*refused)

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.gather(*(lane.close() for lane in self.each))

    async def assigned(self, partitions: set[int]) -> Positions:
        """Load shards; the positions that they reflect. Those that are absent have none."""
        parts = self._parts(partitions)
        self._absent -= partitions
        found = await asyncio.gather(*(lane.load(shards) for lane, shards in parts))
        positions: dict[tuple[str, int], int] = {}
        for (_, shards), known in zip(parts, found, strict=True):
            if known is None:
                self._absent |= shards
            else:
                positions |= known
        return positions

    async def revoked(self, partitions: set[int]) -> None:
        """Forget shards; all their effects are in the databases."""
        await asyncio.gather(*(lane.let_go(shards) for lane, shards in self._parts(partitions)))
        self._absent -= partitions

    async def handle(self, batch: Batch) -> set[int]:
        """Apply a batch, each database's part in transactions of its own.

        Returns:
            shards that could not be done yet: as by `EstimatorHandler.handle`, and those whose
            database is away, or whose lane has other things to do.

        Raises:
            Exception: as by `EstimatorHandler.handle`.
        """
        parts = {
            lane: {
                topic: {n: records for n, records in found.items() if n in shards}
                for topic, found in batch.items()
            }
            for lane, shards in self._parts({n for found in batch.values() for n in found})
        }
        shards = {
            lane: {n for found in part.values() for n in found} for lane, part in parts.items()
        }
        begun = {
            lane: (lane.is_away, lane.begin(lane.handler.handle(part)))
            for lane, part in parts.items()
            if not lane.is_busy
        }
        await _wait([task for was_away, task in begun.values() if not was_away])
        left: set[int] = set()
        for lane, some in shards.items():
            found = begun[lane][1] if lane in begun else None
            undone = found.result() if found is not None and found.done() else None
            left |= some if undone is None else undone
        return left

    async def reached(self, positions: Positions) -> None:
        """All before these positions is applied: note it, where that can be done just now."""
        parts = self._parts({shard for _, shard in positions})
        await _wait(
            [
                lane.begin(
                    lane.handler.reached({k: n for k, n in positions.items() if k[1] in shards})
                )
                for lane, shards in parts
                if not lane.is_busy and not lane.is_away
            ]
        )

    def _parts(self, shards: set[int]) -> list[tuple[Lane, set[int]]]:
        shared = self._databases.shared(shards)
        return [(lane, shared[lane.database]) for lane in self.each if lane.database in shared]

    def _report(self) -> None:
        metrics.PAGES.set(sum(lane.handler.pages for lane in self.each))
        metrics.STUCK.set(sum(lane.handler.stuck for lane in self.each))


async def _wait(tasks: list["asyncio.Task[Any]"]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
