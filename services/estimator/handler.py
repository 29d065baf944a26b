"""A batch of the estimator: apply, learn, commit, announce; again from the database if it failed.

A large one is done in parts, each stored while the next is applied. The shards in memory are a
cache. Whatever goes wrong with the database, the shards of the batch are loaded anew, and the batch
is applied again from the positions that were loaded with them; so it does not matter whether a
commit that was cut off had come through. A shard that another process has loaded meanwhile is
loaded anew as well (`shared.store.owners`); of two that both believe to own one, each takes it from
the other for a batch at a time until both follow their group's decision.

A server that is away is waited for, and so is a right that was taken away. Data that it refuses, or
that the code stumbles over, will be refused again: the batch is then done shard by shard and piece
by piece, each piece with its positions, until the records are found that fail by themselves. Those
are set aside.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

import structlog
from aiokafka.errors import KafkaError
from psycopg.errors import LockNotAvailable

from services.estimator import metrics
from services.estimator.announcing import Announcer, Outbox
from services.estimator.application import forget_erased
from services.estimator.applied import Applied, counted
from services.estimator.commits import Commit
from services.estimator.decoding import Refused
from services.estimator.isolating import isolate
from services.estimator.learning import news_again
from services.estimator.ordering import ShardRecords, by_shard, not_applied, parted
from services.estimator.overlapping import overlapping
from services.estimator.passing import TRANSIENT, passes, passes_at_once, reason
from services.estimator.persistence import Store, Unacceptable
from services.estimator.processing import process
from services.estimator.refitting import Refits, Refitting, refit
from services.estimator.remembering import durable
from services.estimator.residence import make_room
from services.estimator.shard import Shard
from services.estimator.surveying import Survey
from services.estimator.taking import load_some_at_once, taken_over, without_hosts
from services.estimator.traces import note_stored, outcomes_traced_in
from shared.runtime.acceptance import Acceptance
from shared.runtime.batches import Batch, Positions
from shared.runtime.clock import Clock
from shared.runtime.isolation import BadShare
from shared.runtime.retrying import Attempts, until_it_passes
from shared.runtime.settings import Settings
from shared.runtime.tracing import Tracing
from shared.store.positions import Superseded, require_remembered

log = structlog.get_logger(__name__)


class EstimatorHandler:
    """Owns the shards of this process (see `shared.runtime.consumer.BatchHandler`)."""

    least_part = 2_500
    """Records that are worth a transaction of their own: it costs some two milliseconds."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        announcer: Announcer,
        stopping: asyncio.Event,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings, self._clock, self._tracing = settings, clock, tracing
        self._outbox = Outbox(announcer)
        self._stopping = stopping
        self._database_url = settings.database_url.get_secret_value()
        self._store = Store(settings)
        self._shards: dict[int, Shard] = {}
        self._mine: set[int] = set()
        """Shards that are here or are to be: all pages are, or those that are named."""
        self._refits = Refits(settings.prior_refit_days)
        self._survey = Survey(self._database_url)
        self._bad_share = BadShare.of(settings)
        self._may_refit = True
        self._stale: set[int] = set()
        self._stuck: set[int] = set()
        """Shards that somebody held locked: each is done by itself, and waited for a moment."""
        self._positions: dict[tuple[str, int], int] = {}
        self.trouble: str | None = "not connected to the database yet"
        """Why nothing goes on; None: all is well."""
        self.progressed_at = time.monotonic()
        """Wall time of the last sign of life, for the watchdog."""

    async def open(self) -> None:
        """Connect to the database; waits for it.

        Raises:
            StoreMismatch: it is not the database of these settings.
        """
        async for attempt in self._attempts():
            with attempt:
                await self._connect()
        self.trouble = None

    async def close(self) -> None:
        """Disconnect."""
        self._survey.close()
        await asyncio.to_thread(self._store.close)

    async def assigned(self, partitions: set[int]) -> Positions:
        """Load shards; the positions that they reflect. Those without hosts, of which a growth has
        many, are loaded with their first records."""
        self._mine = self._shards.keys() | partitions
        new = partitions - self._shards.keys()
        async for attempt in self._attempts():
            with attempt:
                await self._connect()
                store = self._store, self._settings
                empty, positions = await asyncio.to_thread(without_hosts, *store, new)
        self._stale |= empty
        self._positions |= positions
        async for attempt in self._attempts():
            with attempt:
                await self._connect()
                left = new - empty - self._shards.keys() - self._stuck
                await load_some_at_once(self._load_or_leave, sorted(left))
        await self._announce()
        self.trouble = self._what_is_stuck()
        self._report_size()
        return {key: offset for key, offset in self._positions.items() if key[1] in partitions}

    async def revoked(self, partitions: set[int]) -> None:
        """Forget shards; all their effects are in the database."""
        for shard in partitions:
            self._shards.pop(shard, None)
        self._mine -= partitions
        self._stale -= partitions
        self._stuck -= partitions
        self._outbox.forget(partitions)
        self._positions = {k: v for k, v in self._positions.items() if k[1] not in partitions}
        self._report_size()

    async def handle(self, batch: Batch) -> set[int]:
        """Apply a batch and make it durable, with its positions; what always fails is set aside.

        Returns:
            shards of which nothing more could be done, as somebody holds them locked.

        Raises:
            KafkaError: something cannot be published. What is durable nevertheless will be
                announced by the shard's next owner.
            TooManyBadMessages: the batch has too many; it is not applied, nor set aside.
            Unacceptable: the worker stops while it looks for what cannot be applied.
            psycopg.OperationalError: the worker stops while the database is away.
            Forgotten: the database has lost commits; whoever starts again reads them again.
        """
        records = by_shard(batch)
        healthy = {shard: part for shard, part in records.items() if shard not in self._stuck}
        try:
            await self._do(healthy)
        except LockNotAvailable as error:
            log.warning("a batch is done shard by shard", reason=reason(error))
            self._stuck |= healthy.keys()
        for shard in sorted(self._stuck & records.keys()):
            with contextlib.suppress(LockNotAvailable):
                await self._do({shard: records[shard]})
                self._stuck.discard(shard)
        self.trouble = self._what_is_stuck()
        return self._stuck & records.keys()

    async def reached(self, positions: Positions) -> None:
        """All before these positions is applied, though what came last is no record: note it.

        Otherwise a quiet partition whose last transaction's end has been deleted would look as if
        records had been lost. If it cannot be noted, the next batch's positions are beyond it.
        """
        shards = self._shards.keys() - self._stale - self._stuck
        further = {k: n for k, n in positions.items() if n > self._positions.get(k, 0)}
        after = {key: offset for key, offset in further.items() if key[1] in shards}
        if not after:
            return
        self._stale |= (touched := {shard for _, shard in after})
        owned = {number: self._shards[number].epoch for number in touched}
        commit = Commit.of_positions(owned, self._positions, after, self._clock.now())
        try:
            await self._connect()
            await asyncio.to_thread(self._store.commit, commit)
        except TRANSIENT as error:
            log.warning("positions are noted with the next batch", reason=reason(error))
        else:
            self._stale -= touched
            self._positions |= after

    async def _do(self, records: ShardRecords) -> None:
        """Apply records, in pieces if some of them are bad.

        Raises:
            LockNotAvailable: some of it may not be done.
        """
        if not records:
            return
        try:
            await self._settle(records)
        except Unacceptable as error:
            if self._stopping.is_set():
                raise
            log.warning("a batch fails and is done in pieces", reason=str(error))
            await self._isolate(records)

    async def _settle(self, records: ShardRecords, refused: Refused | None = None) -> None:
        """Apply records, beginning again for as long as the fault is not theirs.

        Args:
            records: to be applied, or known to be bad.
            refused: the only one of them, and why it must not be applied.

        Raises:
            LockNotAvailable: somebody holds a shard of them locked.
        """
        async for attempt in self._attempts(passes_at_once):
            with attempt:
                await self._connect()
                await self._note_lost()
                await self._load_stale(self._needed_to_refit())
                # The others do not wait for what is loaded, nor who waits for what they pass on.
                fresh = {n: part for n, part in records.items() if n not in self._stale}
                for part in (fresh, records):
                    await self._load_stale(part.keys())
                    # Before the next commit, which forgets what was about to be announced.
                    await self._outbox.publish()
                    await self._process(not_applied(part, self._positions), refused)
                await self._load_stale(records.keys())
        await self._announce()

    async def _announce(self) -> None:
        """Announce what is durable; waits for the broker and the database."""
        with metrics.WORK_SECONDS.labels("announce").time():
            async for attempt in self._attempts():
                with attempt:
                    await self._outbox.publish()
                    await self._connect()
                    await self._outbox.note_ends(self._store.note_announced)

    def _needed_to_refit(self) -> set[int]:
        """Shards that others have taken meanwhile, if a refit is due: of all, so none is stuck."""
        may_refit = self._may_refit and not self._stuck
        is_due = may_refit and self._refits.are_due(self._shards.values(), self._clock.now())
        return self._stale if is_due else set()

    async def _note_lost(self) -> None:
        """See which shards others have taken: what is known here of them is out of date."""
        owned = {n: shard.epoch for n, shard in self._shards.items() if n not in self._stale}
        for shard, holder in (await asyncio.to_thread(self._store.lost, owned)).items():
            metrics.SUPERSEDED.inc()
            log.warning("another process has taken a shard over", shard=shard, holder=holder)
            self._stale.add(shard)

    async def _isolate(self, records: ShardRecords) -> None:
        """Do a batch that failed piece by piece, and set aside what fails by itself."""
        # A refit concerns all shards: if it is what fails, no message is at fault.
        self._may_refit = False
        try:
            found = await isolate(records, self._settle, self._stopping)
        finally:
            self._may_refit = True
        if not found:
            log.error("a batch failed as a whole, but not in pieces; the next refit is put off")
            self._refits.noted(self._shards.values(), self._clock.now(), 0.0)

    def _attempts(self, may_pass: Callable[[BaseException], bool] | None = None) -> Attempts:
        return until_it_passes(self._stopping, may_pass or passes, self._note_failure)

    def _note_failure(self, error: BaseException) -> None:
        self.progressed_at = time.monotonic()
        server = "broker" if isinstance(error, KafkaError) else "database"
        self.trouble = f"the {server} cannot be written: {reason(error)}"
        metrics.RETRIES.inc()
        self._refits.put_off()
        log.warning("beginning again from the database", error=reason(error))

    def committed(self) -> Positions:
        """How far the shards here are known to be applied and durable."""
        return durable(self._positions)

    async def _connect(self) -> None:
        """Connect unless we are: to a server that has all that we know to be committed.

        Raises:
            Forgotten: it has not; nothing may be written from what is in memory.
        """
        if not self._store.is_open:
            await asyncio.to_thread(self._store.open)
            found = await asyncio.to_thread(self._store.positions, {n for _, n in self._positions})
            require_remembered(self.committed(), found)

    async def _load_or_leave(self, number: int) -> None:
        """Load a shard; one that somebody holds locked is loaded with its first records."""
        try:
            await self._load(number)
        except LockNotAvailable as error:
            log.warning("a shard cannot be loaded yet", shard=number, reason=reason(error))
            self._stuck.add(number)
            self._stale.add(number)
            self._positions |= await asyncio.to_thread(self._store.positions, [number])

    async def _load_stale(self, shards: Iterable[int]) -> None:
        await load_some_at_once(self._load, sorted(self._stale.intersection(shards)))

    async def _load(self, number: int) -> None:
        shard, snapshot = await asyncio.to_thread(
            taken_over,
            *(self._store, self._settings, number, self._mine, self.committed()),
            hurried=number in self._stuck,
        )
        others = {k: v for k, v in self._positions.items() if k[1] != number}
        self._positions = others | snapshot.positions
        shard.hosts.take_newcomer(other.hosts for other in self._shards.values())
        self._shards[number] = shard
        self._outbox.forget([number])
        again = await asyncio.to_thread(news_again, shard, snapshot.announcing, self._clock.now())
        self._outbox.add(number, again)
        self._stale.discard(number)
        self.progressed_at = time.monotonic()

    def _what_is_stuck(self) -> str | None:
        metrics.STUCK.set(len(self._stuck))
        if not self._stuck:
            return None
        return f"the database holds shards {sorted(self._stuck)} locked for somebody else"

    async def _process(self, records: ShardRecords, refused: Refused | None) -> None:
        """Apply records and store them: one part of a large batch, while the next is applied."""
        if not records:
            return
        refitting = self._refitting(self._clock.now())
        await overlapping(
            [records] if refitting or refused else parted(records, self.least_part),
            lambda part: self._apply(part, refused, refitting),
            lambda applied: self._store_applied(applied, refitting),
            lambda applied: self._bad_share.check(counted(applied), time.monotonic()),
        )

    async def _apply(
        self, records: ShardRecords, refused: Refused | None, refitting: Refitting | None
    ) -> Applied:
        # Until the commit has come through, what these shards have is not what the database has.
        self._stale |= (touched := set(self._shards) if refitting else set(records))
        applied = {} if refused else records
        traced = outcomes_traced_in(self._tracing, applied)
        acceptance = Acceptance.at_present(self._settings, self._clock)
        made = await asyncio.to_thread(
            process, self._shards, applied, acceptance, self._settings, refitting
        )
        return Applied(records, touched, made, refused, traced)

    async def _store_applied(self, applied: Applied, refitting: Refitting | None) -> None:
        made, letters, misplaced = applied.made, applied.letters, applied.misplaced
        epochs = {number: self._shards[number].epoch for number in applied.touched}
        hurried = applied.records.keys() <= self._stuck
        commit = applied.commit(epochs, self._positions, self._clock.now(), hurried=hurried)
        await self._outbox.put_aside(letters, misplaced)
        with metrics.WORK_SECONDS.labels("store").time():
            lost = await asyncio.to_thread(self._store.commit_ours, commit, partly=not refitting)
        note_stored(self._tracing, applied.traced, [*letters, *misplaced])
        if refitting:
            surveyed = 0.0 if refitting is refit else self._survey.seconds
            spent = made.refit_seconds + surveyed
            self._refits.noted(self._shards.values(), self._clock.now(), spent)
        self._stale -= applied.touched - lost
        self._positions |= commit.without(lost).after
        for number in made.news.keys() - lost:
            self._outbox.add(number, made.news[number])
        # Hosts keep their rows in memory: to forget one, the shard is loaded anew.
        self._stale |= await asyncio.to_thread(forget_erased, made.done)
        await self._make_room()
        self._bad_share.add(counted([applied]), time.monotonic())
        self.progressed_at = time.monotonic()
        self._report_size()
        if lost:  # What came of them is done again, and nothing of the others.
            raise Superseded(f"others have taken shards over: {sorted(lost)}", lost)

    def _refitting(self, now: float) -> Refitting | None:
        """How priors are refitted with the next batch; None: they are not.

        In memory where all pages are; else they are looked through beside the batches first.
        """
        shards = self._shards
        if not self._may_refit or self._stale or not self._refits.are_due(shards.values(), now):
            return None
        if all(shard.is_whole for shard in shards.values()):
            return refit
        return self._survey.taken_or_begun(shards)

    async def _make_room(self) -> None:
        """Let pages go where there are too many, but those that differ from the database's."""
        most = self._settings.estimator_resident_pages
        clean = [shard for number, shard in self._shards.items() if number not in self._stale]
        if sum(len(shard.pages) for shard in clean) > most:
            await asyncio.to_thread(make_room, clean, most)

    def _report_size(self) -> None:
        metrics.PAGES.set(sum(len(shard.pages) for shard in self._shards.values()))
