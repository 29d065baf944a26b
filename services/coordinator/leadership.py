"""One of the coordinators leads: its lease in PostgreSQL, renewed, taken over, given back.

A leader shows twice a second that it lives. Another coordinator takes over when the leader's
connection is gone for a second (it was killed), or when it has shown no life for the lease's time
while the database answered (it hangs, is stopped, or cut off). Only monotonic clocks are used.

What keeps two leaders from disturbing each other is not the lease but the epoch in every message:
whoever reads `multipliers` leaves out those of an older epoch than the newest. So a leader that
cannot reach the database goes on: as long as nobody else can reach it either nobody takes over, and
if somebody does, it sees the new epoch on the topic and steps back.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

import psycopg
import structlog

from shared.store.lease import (
    Lease,
    LeaseMissing,
    connect_lease,
    read_lease,
    release_lease,
    renew_lease,
    take_lease,
)
from shared.store.rights import COORDINATOR, reason_why_not

log = structlog.get_logger(__name__)

BEAT_SECONDS: Final = 0.5

GONE_SECONDS: Final = 1.0
"""A leader whose connection is gone for so long is dead; a short fault of the network is not."""

ANSWER_SECONDS: Final = 2.5
"""The database is given so long."""

CONFIRM_SECONDS: Final = 0.2
"""A decision waits so long for an answer at most. It is begun half a lead before it must be made,
and what one that was replaced still says counts for nobody."""

_RELEASE_SECONDS: Final = 1.0


class LeaseWatch:
    """For how long a lease has stood still, as one sees who looks at it again and again. Pure."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._seen: Lease | None = None
        self._still_since = 0.0
        self._gone_since: float | None = None
        self._looked_at = 0.0

    def may_take(self, lease: Lease, now: float) -> bool:
        """Whether the leader is gone.

        Args:
            lease: as it was just read.
            now: monotonic seconds.
        """
        # Whoever did not look for a while, or could not, has not seen the leader stand still.
        has_looked_on = now - self._looked_at <= 2 * BEAT_SECONDS + 0.25
        is_same = self._seen is not None and lease[:3] == self._seen[:3]
        if not (has_looked_on and is_same):
            self._still_since = now
            self._gone_since = None
        self._seen, self._looked_at = lease, now
        if not lease.holder:
            return True
        if lease.is_connected:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        is_gone = self._gone_since is not None and now - self._gone_since >= GONE_SECONDS
        return is_gone or now - self._still_since >= self._lease_seconds


class Leadership:
    """This coordinator's part in the election."""

    def __init__(
        self,
        database_url: str,
        name: str,
        lease_seconds: float,
        newest_epoch: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        """Be a follower that knows of no leader.

        Args:
            database_url: libpq URL.
            name: ours, for people.
            lease_seconds: wall seconds without a sign of life after which a leader is replaced.
            newest_epoch: the highest epoch on the topic `multipliers`.
            on_change: called when we begin to lead, or cease.
        """
        self.epoch = 0
        """Of our leadership; 0: we follow."""
        self.leader = ""
        """Who leads, as the lease says; empty: nobody is known to."""
        self.trouble: str | None = None
        """Why the database cannot be asked; None: it answers."""
        self._database_url = database_url
        self._name = name
        self._watch = LeaseWatch(lease_seconds)
        self._lease_seconds = lease_seconds
        self._newest_epoch = newest_epoch
        self._on_change = on_change
        self._connection: psycopg.AsyncConnection | None = None
        self._lock = asyncio.Lock()
        self._renewed_at = 0.0
        self._confirming: asyncio.Future[None] | None = None
        """What was asked before a decision, until its answer is there."""
        self._leaving: set[asyncio.Future[None]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Renew or watch the lease until `stopping` is set; then give it back."""
        try:
            while not stopping.is_set():
                await self._turn()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), BEAT_SECONDS)
        finally:
            await self._end()

    async def confirm(self) -> bool:
        """Whether we still lead, asked again if the last answer is old: after a long pause.

        Of a database that hangs the answer is waited for for a moment, and once: whoever cannot
        ask goes on.
        """
        if self._confirming is None and self._is_in_doubt():
            self._confirming = asyncio.ensure_future(self._end_doubt())
            await asyncio.wait([self._confirming], timeout=CONFIRM_SECONDS)
        if self._confirming is not None and self._confirming.done():
            confirmed, self._confirming = self._confirming, None
            confirmed.result()
        return bool(self.epoch)

    def _is_in_doubt(self) -> bool:
        """Whether the last answer is old, and nobody knows yet that none can be had."""
        is_fresh = time.monotonic() - self._renewed_at < self._lease_seconds / 2
        return bool(self.epoch) and not is_fresh and self.trouble is None

    def superseded(self, epoch: int, leader: str) -> None:
        """The topic has messages of a newer epoch, or another's of ours: another leads."""
        is_ours = (epoch, leader) == (self.epoch, self._name)
        if self.epoch and epoch >= self.epoch and not is_ours:
            self._step_back(leader, f"another coordinator leads in epoch {epoch}")

    async def _turn(self) -> None:
        async with self._lock:
            await self._ask_or_note_why_not()

    async def _end_doubt(self) -> None:
        async with self._lock:
            if self._is_in_doubt():  # The loop may have asked meanwhile.
                await self._ask_or_note_why_not()

    async def _ask_or_note_why_not(self) -> None:
        try:
            await self._ask_in_time()
        except (psycopg.Error, OSError, TimeoutError, LeaseMissing) as error:
            await self._note_trouble(error)
        else:
            if self.trouble is not None:
                log.info("the database answers again", leads=bool(self.epoch))
            self.trouble = None

    async def _ask_in_time(self) -> None:
        """Ask, or give the connection up: psycopg waits for seconds for the end of what hangs when
        it is cancelled, and nobody else has to."""
        asking = asyncio.ensure_future(self._ask())
        try:
            await asyncio.wait([asking], timeout=ANSWER_SECONDS)
            if not asking.done():
                raise TimeoutError
        finally:
            if not asking.done():
                asking.cancel()
                connection, self._connection = self._connection, None
                leaving = asyncio.ensure_future(_leave(asking, connection))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
        asking.result()

    async def _ask(self) -> None:
        if self._connection is None:
            self._connection = await connect_lease(self._database_url)
        connection, epoch = self._connection, self.epoch
        if epoch:
            if await renew_lease(connection, epoch, self._name):
                self._renewed_at = time.monotonic()
            else:
                holder = (await read_lease(connection)).holder
                if self.epoch == epoch:
                    self._step_back(holder, "another coordinator has taken the lease")
            return
        lease = await read_lease(connection)
        self.leader = lease.holder
        if not self._watch.may_take(lease, time.monotonic()):
            return
        taken = await take_lease(connection, self._name, lease, self._newest_epoch())
        if taken is not None:
            self.epoch, self.leader = taken, self._name
            self._renewed_at = time.monotonic()
            log.info("this coordinator leads now", epoch=taken, before=lease.holder or None)
            self._on_change()

    def _step_back(self, leader: str, why: str) -> None:
        log.warning("this coordinator no longer leads", epoch=self.epoch, why=why)
        self.epoch, self.leader = 0, leader
        self._on_change()

    async def _note_trouble(self, error: Exception) -> None:
        reason = _reason(error)
        if self.trouble is None:
            log.warning(
                "the lease cannot be asked for; a coordinator that leads goes on",
                leads=bool(self.epoch),
                reason=reason,
            )
        self.trouble = reason
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()

    async def _end(self) -> None:
        confirming, self._confirming = self._confirming, None
        if confirming is not None:
            confirming.cancel()
        async with self._lock:
            if self.epoch and self._connection is not None:
                with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                    async with asyncio.timeout(_RELEASE_SECONDS):
                        await release_lease(self._connection, self.epoch, self._name)
            self.epoch = 0
            await self._disconnect()


async def _leave(asking: asyncio.Future[None], connection: psycopg.AsyncConnection | None) -> None:
    """Close a connection when what hangs there has ended, or the process ends."""
    try:
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()
    finally:
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return "the database is not of this version: run `freshet migrate`"
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:g} s"
    return reason_why_not(error, COORDINATOR) or type(error).__name__
