"""Tables in memory, and transactions on them: locks, what is lost, and when a commit happens.

What a worker does with the database runs in a thread, that is in one go. Its statements take their
locks then, but the commit comes later, as a step of its own: in between the process may be paused
(its locks stay), killed (it is rolled back) or cut off, and the answer may be lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import psycopg

from services.verify.simulation.loop import Finish, Hanging, VirtualLoop
from services.verify.simulation.process import OUTSIDE, Killed, Process, current
from services.verify.simulation.store.holdings import Holdings
from shared.contracts.layout import ALONE, Layout
from shared.store.connection import SILENT_SECONDS
from shared.store.imports_log import PageImport

Row = dict[str, Any]
Key = tuple[Any, ...]

LOCK_LOOK_SECONDS: Final = 0.02
"""Between two looks whether a lock is free."""

NOTICED_SECONDS: Final = 0.05
"""A server notices so soon that a client was killed."""

SLOWEST_SECONDS: Final = 1.5

CUT_SECONDS: Final = 4.0
"""A connection that is cut off for longer is given up on both sides."""


class Transaction:
    """Writes that are not visible yet, and the locks that they hold."""

    def __init__(self, process: Process, patience: float, begun_at: float) -> None:
        self.process = process
        self.patience = patience
        """A lock is waited for so long; seconds."""
        self.begun_at = begun_at
        """Virtual seconds."""
        self.writes: list[Callable[[], None]] = []
        """Done when it is committed."""
        self.undoing: list[Callable[[], None]] = []
        """Done when it is rolled back."""
        self.locks: set[Key] = set()
        self.inserted: set[Key] = set()
        self.topics: dict[str, str] = {}
        """Ids of topics that it notes."""
        self.records: set[int] = set()
        """Shards of which it stores crawl records."""
        self.moves: set[int] = set()
        """Shards of which it stores how far an estimator has read."""
        self.is_over = False


@dataclass(slots=True)
class Commits:
    """Those that there were."""

    count: int = 0
    wrong: list[str] = field(default_factory=list)
    """Those of crawl records without how far was read, or of shards of others."""

    def add(self, transaction: Transaction, owners: dict[int, Row], now: float) -> None:
        """A transaction has been committed.

        Args:
            transaction: which.
            owners: of the shards, until then.
            now: virtual seconds.
        """
        self.count += 1
        process = transaction.process
        self.wrong += [
            f"at {now:.3f}: {process.name} stores crawl records of shard {shard} alone"
            for shard in sorted(transaction.records - transaction.moves)
        ]
        self.wrong += [
            f"at {now:.3f}: {process.name} stores shard {shard}, which is another's"
            for shard in sorted(transaction.moves)
            if owners.get(shard, {}).get("process") is not process
        ]


@dataclass(frozen=True, slots=True)
class SplitDone:
    """A shard was split."""

    family: frozenset[int]
    """It, and the shards that its hosts were split among."""
    layout: Layout
    """From then on."""
    applied: dict[tuple[str, int], int]
    """(topic, partition of the family) → before which offset all was applied."""


class Database:
    """All tables."""

    def __init__(self, loop: VirtualLoop, rng: Random, slow_share: float) -> None:
        self.loop, self.is_down = loop, False
        self.layout = ALONE
        """How the hosts are shared out."""
        self.splits: dict[int, Row] = {}
        """Shard of before the growth → state, until, split_at."""
        self.claims: dict[int, str] = {}
        """Shard → the fencing token of the scheduler that has loaded it last."""
        self.holdings = Holdings()
        self.splits_done: list[SplitDone] = []
        """All of all growths, in order."""
        self.pages: dict[int, dict[int, Row]] = {}
        """Shard → page id → columns."""
        self.urls: dict[tuple[int, int], str] = {}
        self.hosts: dict[int, dict[int, Row]] = {}
        self.positions: dict[tuple[str, str, int], int] = {}
        """(consumer, topic, partition) → next offset."""
        self.observations: list[tuple[int, int, float, float, int, bool]] = []
        """Shard, page, time of the crawl, interval in days, signals, changed."""
        self.owners: dict[int, Row] = {}
        """Shard → epoch, holder, and what its last commit was about to announce."""
        self.topics: dict[str, str] = {}
        """Topic → id that the positions are about."""
        self.imports: dict[int, list[PageImport]] = {}
        """Shard → its imports, in their order."""
        self.erased_pages: dict[int, dict[int, float]] = {}
        """Shard → page id → when it was erased."""
        self.erased_hosts: dict[int, dict[int, float]] = {}
        self.unanswered: dict[int, dict[int, Row]] = {}
        """Shard → page id → columns."""
        self.classes: dict[int, dict[int, str]] = {}
        """Shard → number → name of its classes of pages."""
        self.is_importing = False
        """Whether estimators are kept out."""
        self.lease: Row = {"epoch": 0, "holder": "", "beat": 0, "session": None}
        self.commits = Commits()
        self.committed: Callable[[Process], None] = lambda _: None
        """Told of each commit."""
        self.forgot: Callable[[Process], None] = lambda _: None
        """Told when the server has noticed that a process is gone."""
        self.kill_at: dict[str, str] = {}
        """Process → where in its next transaction it is killed: before, amid or after."""
        self.kill: Callable[[Process], None] = lambda _: None
        self._random = rng.random
        self._slow_share = slow_share
        self._cut: dict[str, float] = {}
        self._open: list[Transaction] = []
        self._pending: Transaction | None = None
        self._waiting: dict[Process, float] = {}
        """Since when a process waits for a lock; virtual seconds."""
        loop.settle = self._settle

    # Who reaches it.

    def cut(self, name: str) -> None:
        """Let nothing through between a process and the server."""
        self._cut[name] = self.loop.now

    def heal(self, name: str) -> None:
        """Let everything through again."""
        self._cut.pop(name, None)

    def stop(self) -> None:
        """The server goes down: what is not committed is gone, and so are all connections."""
        self.is_down = True
        for transaction in list(self._open):
            self.roll_back(transaction)

    def start(self) -> None:
        """The server is back."""
        self.is_down = False

    def check(self) -> None:
        """Whether the process whose turn it is reaches the server now.

        Raises:
            psycopg.OperationalError: it does not.
            Hanging: it waits for an answer.
        """
        if self.is_down:
            raise psycopg.OperationalError("the server is down")
        since = self._cut.get(current().name)
        if since is None:
            return
        if self.loop.now - since < CUT_SECONDS:
            raise Hanging(0.25)
        raise psycopg.OperationalError("no answer: the connection timed out")

    # Transactions.

    def begin(self, patience: float) -> Transaction:
        """Begin a transaction that waits for a lock for so many seconds."""
        self.check()
        if self._pending is not None:
            # The thread goes on after a commit: it has come through.
            self._apply(self._pending)
            self._pending = None
            if self.kill_at.get(current().name) == "amid":
                self._die(current())
                raise Killed
        if self.kill_at.get(current().name) == "before":
            self._die(current())
            raise Killed
        transaction = Transaction(current(), patience, self.loop.now)
        self._open.append(transaction)
        return transaction

    def lock(self, transaction: Transaction, keys: list[Key]) -> None:
        """Lock rows.

        Raises:
            Hanging: another transaction has one of them.
            psycopg.errors.LockNotAvailable: and has had it for too long.
        """
        wanted, process = set(keys), transaction.process
        for other in list(self._open):
            if other is transaction or not other.locks & wanted:
                continue
            if self.loop.now - other.begun_at > SILENT_SECONDS:
                self.roll_back(other)  # a client that has said nothing for so long is given up
                continue
            since = self._waiting.setdefault(process, self.loop.now)
            if self.loop.now - since < transaction.patience:
                raise Hanging(LOCK_LOOK_SECONDS)
            del self._waiting[process]
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
        self._waiting.pop(process, None)
        transaction.locks |= wanted

    def is_locked(self, key: Key) -> bool:
        """Whether somebody has locked a row."""
        return any(key in transaction.locks for transaction in self._open)

    def end(self, transaction: Transaction) -> None:
        """All statements are done: the commit is the next step of the process."""
        if transaction.is_over:
            raise psycopg.OperationalError("the connection was lost")
        self._pending = transaction

    def roll_back(self, transaction: Transaction) -> None:
        """Forget a transaction."""
        if not transaction.is_over:
            for undo in transaction.undoing:
                undo()
        transaction.is_over = True
        if transaction in self._open:
            self._open.remove(transaction)

    def forget(self, process: Process) -> None:
        """A process is gone: the server notices, and rolls back what it had open."""

        def notice() -> None:
            for transaction in [t for t in self._open if t.process is process]:
                self.roll_back(transaction)
            self.forgot(process)

        self.loop.call_later(NOTICED_SECONDS, notice, context=OUTSIDE.context())

    def _apply(self, transaction: Transaction) -> None:
        transaction.is_over = True
        self._open.remove(transaction)
        self.commits.add(transaction, self.owners, self.loop.now)
        for write in transaction.writes:
            write()
        self.committed(transaction.process)

    def _settle(self, finish: Finish) -> None:
        """Work in a thread has ended: commit what it has left, then let its result be known."""
        transaction, self._pending = self._pending, None
        if transaction is None:
            finish(None)
            return
        slow = self._random() < self._slow_share
        seconds = SLOWEST_SECONDS * self._random() if slow else 0.002 * self._random()
        before = seconds * self._random()
        self.loop.call_later(before, self._commit, transaction, seconds - before, finish)

    def _commit(self, transaction: Transaction, seconds: float, finish: Finish) -> None:
        process = transaction.process
        since = self._cut.get(process.name)
        if since is not None and self.loop.now - since < CUT_SECONDS:
            self.loop.call_later(0.25, self._commit, transaction, seconds, finish)
            return
        if transaction.is_over or since is not None:
            self.roll_back(transaction)
            finish(psycopg.OperationalError("the connection was lost before the commit"))
            return
        if self.kill_at.get(process.name) == "amid":
            self._die(process)
            return
        self._apply(transaction)
        if self.kill_at.get(process.name) == "after":
            self._die(process)
            return
        self.loop.call_later(seconds, self._hear, process, finish)

    def _hear(self, process: Process, finish: Finish) -> None:
        lost = self.is_down or process.name in self._cut
        finish(psycopg.OperationalError("the answer was lost") if lost else None)

    def _die(self, process: Process) -> None:
        self.kill_at.pop(process.name, None)
        self.kill(process)
